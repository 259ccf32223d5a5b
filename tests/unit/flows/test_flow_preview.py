"""`tidegate flow preview`: a flow is played in the terminal, by a script or by hand."""

import io
import json
import sys
from pathlib import Path

import pytest

from tidegate.cli import main

FLOW = """
from tidegate.flows import FlowBuilder

flow = FlowBuilder("cafe", in_place=True, lifetime=3_600, given=("first_name",))
flow.command("/start", to="start")
start = flow.state("start", say="Hello, {first_name}!").button("Order", to="list")
start.button("Say your number", to="phone").button("Help", trigger="help", guard="never").on("button:help")
start.button("Rooms", to="rooms").on("photo", to="yours", save=("file_id", "caption"))
flow.state("list", otherwise="One moment.").run("find_teas", done="teas", failed="sorry", save=("teas",))
flow.state("teas", say="Which tea?").choose("teas", to="pay", text="{name}", save=("name",), page=2)
paying = flow.state("pay", say="Pay for {name}.").poll("payment", key="name", met="paid", gone="sorry")
paying.button("Pay", url="https://pay.example/{name}")
paying.timeout(900, say="Still there?").on("signal:refused", to="sorry", save="why")
flow.state("rooms", say="A room?").photo("room.png").button("Back", to="start")
flow.state("phone", say="Your number?").key("Here", request="contact", to="end", save=("phone_number",))
flow.final("end", say="I call {phone_number}.")
flow.final("yours", say="Yours: {caption}").photo(id="{file_id}")
flow.final("paid", say="Thank you.")
flow.final("sorry", say="Sorry. {why}")


@flow.guard
def never(data, event):
    return False
"""
TEAS = '{"teas": [{"name": "Assam"}, {"name": "Sencha"}, {"name": "Rooibos"}]}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cafe_flow.py").write_text(FLOW, encoding="utf-8")
    (tmp_path / "room.png").write_bytes(b"a room")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "cafe_flow", raising=False)
    return tmp_path


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


def play(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *lines: str,
    options: tuple[str, ...] = (),
) -> tuple[int, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    code = main(["flow", "preview", "cafe_flow:flow", *options])
    return code, capsys.readouterr().out


def test_a_script_is_played_to_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        "# an order",
        "/start",
        "< Hello, Zoë!",
        "1",
        ":say What now?",
        "< One moment.",
        f":done {TEAS}",
        "»",
        "Rooibos",
        ":wait 16m",
        "< Which tea?",
        "< Which tea?",
        "< Pay for Rooibos.",
        "< Still there?",
        "<",
        ":met",
        "< Thank you.",
    ]
    code, shown = play(capsys, monkeypatch, *script, options=("--name", "Zoë"))
    assert code == 0
    assert "> 1\n  … find_teas has begun: end it with :done JSON, or :failed\n" in shown
    assert "  Which tea?\n  [1] Assam  [2] Sencha  [3] 1/2  [4] »\n" in shown
    assert "> »\n  (changed) Which tea?\n  [1] Rooibos  [2] «  [3] 2/2\n" in shown


def test_an_address_that_a_button_opens_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shown = play(capsys, monkeypatch, "/start", "1", f":done {TEAS}", "1")
    assert shown.endswith("  (changed) Pay for Assam.\n  [link] https://pay.example/Assam\n")


def test_numbers_count_what_the_latest_message_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("/start", "Say your number", "Help", "1")  # the text of an older button presses it
    code, shown = play(capsys, monkeypatch, *lines)
    assert code == 0
    assert "  Your number?\n  [1] Here\n> Help\n  (notice) That button is no longer in use.\n" in shown
    assert shown.endswith("> 1\n  I call +1001.\n")


def test_buttons_stand_below_the_text_that_has_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shown = play(capsys, monkeypatch, "/start", "Rooms", "Back")
    assert "  (a message is deleted)\n  Hello, Ann!\n  [1] Order" in shown


@pytest.mark.parametrize(
    ("lines", "heard"),
    [
        (["1", ":failed no stock"], "Sorry. "),
        (["1", f":done {TEAS}", "1", ":gone"], "Sorry. "),
        (["1", f":done {TEAS}", "1", ":signal refused too poor"], "Sorry. too poor"),
        (["Say your number", "Here"], "I call +1001."),
        (["Say your number", ":contact +49"], "I call +49."),
        ([":photo my cat"], "[photo a photo] Yours: my cat"),
        ([":wait 2h", "Order"], "(notice) That button is no longer in use."),
        (["3"], "(notice) Please use the buttons."),
        ([":begin", ":state"], "start {}"),
        ([":location 1 2", ":document"], "Please use the buttons."),
    ],
)
def test_everything_that_can_happen_can_be_played(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: list[str], heard: str
) -> None:
    code, shown = play(capsys, monkeypatch, "/start", *lines)
    assert (code, heard in shown) == (0, True), shown


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["< Hello"], "a message with 'Hello' was expected, and there is none"),
        (["/start", "< Bye"], "a message with 'Bye' was expected, and there is 'Hello, Ann!'"),
        (["/start", "<"], "no other message was expected, and there is 'Hello, Ann!'"),
        (["Hello?"], "the flow does not take it: no session has begun"),
        (["/start", ":done"], "no work has begun"),
        (["/start", ":met"], "the session waits for no poll"),
        ([":signal x"], "there is no session that could hear it"),
        ([":begin 5"], "'5' are no fields: write a JSON object"),
        ([":wait long"], ":wait: 'long' is not a duration"),
        ([":location home"], "'home' is no place"),
        ([":dance"], ":dance is no command: there are :say, :contact"),
    ],
)
def test_what_cannot_be_done_ends_a_script_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: list[str], problem: str
) -> None:
    code, shown = play(capsys, monkeypatch, *lines, "/start")
    assert code == 1
    assert shown.splitlines()[-1].startswith(f"  ! {problem}")


def test_programs_get_each_step_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "order.txt").write_text("/start\n1\n")
    code, shown = play(capsys, monkeypatch, options=("--script", "order.txt", "--json"))
    assert (code, json.loads(shown)) == (
        0,
        {
            "flow": "cafe",
            "passed": True,
            "steps": [
                {
                    "line": "/start",
                    "heard": [
                        {
                            "text": "Hello, Ann!",
                            "buttons": [["Order"], ["Say your number"], ["Help"], ["Rooms"]],
                        }
                    ],
                    "state": "start",
                },
                {"line": "1", "state": "list", "waits_for": ["find_teas"]},
            ],
        },
    )


def test_by_hand_a_mistake_is_told_and_the_play_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Typed(":done\n\n/start\n"))
    assert main(["flow", "preview", "cafe_flow:flow"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Write as the user of the bot.")
    assert ">   ! no work has begun\n> >   Hello, Ann!\n" in shown


def test_a_script_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "preview", "cafe_flow:flow", "--script", "none.txt"]) == 2
    assert "cannot read none.txt" in capsys.readouterr().err
