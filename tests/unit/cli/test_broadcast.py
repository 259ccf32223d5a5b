"""A broadcast from file to report, in virtual time against the simulator."""

import asyncio
import csv
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.broadcast.audience_file import AudienceFile
from tidegate.broadcast.message import BroadcastMessage
from tidegate.cli import terminal
from tidegate.cli.broadcast import BroadcastOrder
from tidegate.cli.broadcast.control import campaign_details
from tidegate.cli.broadcast.missed import find_missed, missed_parts
from tidegate.cli.broadcast.run import BroadcastJob, broadcast
from tidegate.cli.progress import CountRate
from tidegate.errors import BadInputError, NotTheSenderError, TidegateError
from tidegate.model import BotId
from tidegate.outbox.port import Outbox
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock

BOT = BotId(42)
EARLIER = "chat_id,state,reason\n" + "1,dead,blocked\n" * 100


class Desk:
    """Where broadcasts are ordered, again and again in the same gate."""

    def __init__(self, gate: Tidegate, clock: VirtualClock, out: pytest.CaptureFixture[str]) -> None:
        self.gate, self.clock, self._out = gate, clock, out
        self.stop = asyncio.Event()
        self.told = ""

    async def run(self, content: str, **written: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401  (options)
        """The exit code, and the JSON report."""
        code = await self.show(content, **written, as_json=True)
        lines = self.told.splitlines()
        return code, json.loads(lines[-1])

    async def show(self, content: str, **written: Any) -> int:  # noqa: ANN401
        order = BroadcastOrder(file="list.csv", **written)
        mailing = order.mailing(source_of(content))
        name = order.name or mailing.identity(BOT)
        job = BroadcastJob(self.gate, BOT, name, self.stop, self.clock, order.as_json)
        try:
            return await broadcast(job, order, mailing)
        finally:
            out, err = self._out.readouterr()
            self.told = err + out


@pytest.fixture
async def desk(gate: Tidegate, clock: VirtualClock, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(gate, clock, capsys)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A report of another day."""
    place = tmp_path / "unreached.csv"
    place.write_text(EARLIER)
    return place


def source_of(content: str) -> AudienceFile:
    data = content.encode()
    return AudienceFile("list.csv", io.BytesIO(data), size=len(data))


def people(count: int) -> str:
    return "chat_id,name\n" + "".join(f"{1000 + i},Person {i}\n" for i in range(count))


def drawn(picture: RenderableType) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(picture)
    return console.export_text()


async def texts(telegram: SimulatedTelegram, chat_id: int) -> list[str]:
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    chat = telegram.world.chat(bot, chat_id)
    assert chat is not None
    return [message["text"] for message in chat.messages.values()]


def block(telegram: SimulatedTelegram, chat_id: int) -> None:
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    telegram.world.add_private(bot, chat_id).blocked = True


async def test_everybody_gets_their_own_text_and_the_report_adds_up(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    block(telegram, 1003)

    code, report = await desk.run(people(100), text="<b>Hello {name}</b> #1", parse_mode="HTML")

    assert code == 0
    assert report["accepted"] == 100
    assert (report["delivered"], report["dead"], report["blocked"]) == (99, 1, 1)
    assert (report["waiting"], report["refused"], report["bad_lines"], report["parked"]) == (0, 0, 0, 0)
    assert report["reasons"] == {"blocked": 1}
    assert report["passed"]
    assert 3 <= report["seconds"] <= 5
    assert report["avg_rps"] == pytest.approx(99 / report["seconds"], rel=0.05)
    assert await texts(telegram, 1007) == ["<b>Hello Person 7</b> #1"]


async def test_a_bad_line_stops_everything_before_anything_is_put(desk: Desk, gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match=r"1 of 4 lines are bad, and nothing was sent.*--skip-bad"):
        await desk.show(people(3) + "12x,Eve\n", text="Hi {name}")
    assert "line 5: chat_id '12x' is no chat: give a number" in desk.told
    assert (await gate.stats()).waiting == 0


async def test_bad_lines_are_told_to_a_program_too(desk: Desk) -> None:
    with pytest.raises(BadInputError):
        await desk.run("chat_id,text\nx,1\n")
    told = json.loads(desk.told.splitlines()[-1])
    assert (told["accepted"], told["bad_lines"], told["passed"]) == (0, 1, False)
    assert told["errors"][0]["line"] == 2


async def test_good_lines_are_sent_without_the_bad_ones_if_asked(desk: Desk) -> None:
    code, report = await desk.run(
        people(3) + "12x,Eve\n1000,Again\n", text="Hi {name}", skip_bad=True, name="may"
    )
    assert (code, report["delivered"], report["bad_lines"], report["name"]) == (0, 3, 2, "may")
    assert [error["line"] for error in report["errors"]] == [5, 6]


async def test_of_many_bad_lines_the_first_are_shown(desk: Desk) -> None:
    with pytest.raises(
        BadInputError, match=r"1,000 of 1,000 lines are bad, and nothing was sent: correct them$"
    ):
        await desk.show("chat_id,text\n" + "x,y\n" * 1000)
    lines = desk.told.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "… and 980 more"


async def test_an_empty_list_is_bad_input(desk: Desk) -> None:
    with pytest.raises(BadInputError, match=r"nobody is in list\.csv"):
        await desk.show("chat_id,text\n")


async def test_a_dry_run_shows_what_would_go_and_puts_nothing(desk: Desk, gate: Tidegate) -> None:
    code = await desk.show(people(3030), text="Hi {name}\n[b]you[/b]", dry_run=True)
    assert code == 0
    assert "to 1002:\n  Hi Person 2\n  [b]you[/b]\n" in desk.told
    assert "Person 3\n" not in desk.told
    assert "3,030 would be sent, in 106 s or more at the limit of 30/1 s; nothing was" in desk.told
    assert (await gate.stats()).waiting == 0

    code, found = await desk.run(people(2), text="Hi {name}", dry_run=True)
    assert (code, found["would_send"], found["already"]) == (0, 2, 0)
    assert found["first"][1] == {"chat_id": 1001, "text": "Hi Person 1"}


async def test_what_is_complete_is_not_sent_again_unless_under_another_name(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    await desk.run(people(3), text="Hi {name}")

    code, report = await desk.run(people(3), text="Hi {name}")
    assert (code, report["accepted"], report["delivered"], report["avg_rps"]) == (0, 3, 3, 0)
    await desk.show(people(3), text="Hi {name}")
    assert "It was complete: nothing was sent. To send it again, give it another --name." in desk.told
    assert await texts(telegram, 1001) == ["Hi Person 1"]

    code, report = await desk.run(people(3), text="Hi {name}", name="second-time")
    assert (code, report["name"], report["delivered"]) == (0, "second-time", 3)
    assert await texts(telegram, 1001) == ["Hi Person 1"] * 2


async def test_a_broadcast_that_was_cancelled_is_not_called_complete(desk: Desk, gate: Tidegate) -> None:
    await desk.run(people(3), text="Hi {name}", name="spring", wait=False)
    await gate.outbox.pause(BOT)
    await gate.cancel_campaign("spring")

    await desk.show(people(3), text="Hi {name}", name="spring")

    assert "complete" not in desk.told
    assert "3 of its messages were cancelled, and nothing was sent now." in desk.told


async def test_another_file_under_the_same_name_goes_to_those_who_are_new(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    await desk.run(people(3), text="Hi {name}", name="spring")
    code, report = await desk.run(people(5), text="Hi again {name}", name="spring")
    assert (code, report["accepted"], report["delivered"]) == (0, 5, 5)
    assert await texts(telegram, 1001) == ["Hi Person 1"]
    assert await texts(telegram, 1004) == ["Hi again Person 4"]


async def test_a_broadcast_that_an_older_version_began_is_resumed_by_its_keys(
    desk: Desk, gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    begun = [
        {"chat_id": chat, "text": "Hi", "dedup_key": f"broadcast:spring:{chat}", "dedup_for": 7 * 86_400.0}
        for chat in (1000, 1001)
    ]
    await gate.send_many(begun, bot=BOT, priority="low")

    code, report = await desk.run(people(3), text="Hi", name="spring")

    assert "resuming: 2 of 3 are already in" in desk.told
    assert (code, report["accepted"], report["delivered"]) == (0, 3, 3)
    assert telegram.report()["accepted"] == 3


async def test_ctrl_c_leaves_the_rest_in_the_store_and_the_same_command_goes_on(
    desk: Desk, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    clock.call_later(2.5, desk.stop.set)
    code, report = await desk.run(people(300), text="Hi {name} #1")
    assert (code, report["passed"]) == (130, False)
    assert report["accepted"] == 300
    assert 60 <= report["delivered"] <= 120
    assert report["waiting"] == 300 - report["delivered"]

    desk.stop.clear()
    code, report = await desk.run(people(300), text="Hi {name} #1")
    assert "resuming: 300 of 300 are already in" in desk.told
    assert (code, report["delivered"], report["waiting"]) == (0, 300, 0)
    seen = telegram.report()
    assert (seen["accepted"], seen["doubled"], seen["refused"]) == (300, 0, 0)


async def test_ctrl_c_while_checking_sends_nothing(desk: Desk, gate: Tidegate) -> None:
    desk.stop.set()
    assert await desk.show(people(3), text="Hi") == 130
    assert "stopped while checking: nothing was sent" in desk.told
    assert (await gate.stats()).waiting == 0


async def test_ctrl_c_says_how_to_go_on(desk: Desk, clock: VirtualClock) -> None:
    clock.call_later(1.0, desk.stop.set)
    assert await desk.show(people(100), text="Hi", name="spring") == 130
    assert (
        "to resume, run the same command again, or tidegate broadcast resume spring. Or leave them to "
        "tidegate worker."
    ) in " ".join(desk.told.split())


async def test_without_waiting_it_returns_once_all_are_in(desk: Desk, gate: Tidegate) -> None:
    code, report = await desk.run(people(600), text="Hi", wait=False)
    assert (code, report["accepted"], report["waiting"], report["passed"]) == (0, 600, 600, None)
    assert (await gate.stats()).low == 600


async def test_a_chat_gets_several_messages_if_allowed(desk: Desk, telegram: SimulatedTelegram) -> None:
    content = "chat_id,text\n5,first\n5,second\n"
    code, report = await desk.run(content, allow_duplicates=True)
    assert (code, report["delivered"]) == (0, 2)
    assert await texts(telegram, 5) == ["first", "second"]


async def test_whom_it_did_not_reach_is_written_down(
    desk: Desk, gate: Tidegate, telegram: SimulatedTelegram, tmp_path: Path
) -> None:
    block(telegram, 1001)
    block(telegram, 7)
    await gate.send(chat_id=7, text="of somebody else")
    place = tmp_path / "unreached.csv"

    code, report = await desk.run(people(3), text="<b>{name}", parse_mode="HTML", report=str(place))

    with place.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["chat_id", "state", "reason"]
    assert ["1001", "dead", "blocked"] in rows
    assert len(rows) == 1 + report["dead"]
    assert f"not reached: {report['dead']}, listed in" in desk.told
    assert code == (0 if report["dead"] == report["blocked"] else 1)


async def test_whom_a_broadcast_missed_can_be_asked_when_it_has_ended(
    desk: Desk, gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    block(telegram, 1001)
    block(telegram, 1004)
    block(telegram, 7)
    await desk.run(people(6), text="Hi", name="sale")
    await desk.run("chat_id\n7\n", text="Hi", name="sale-2")  # its name begins alike

    found = await find_missed(gate, "sale", None)

    assert sorted(found.chats) == [("1001", "dead", "blocked"), ("1004", "dead", "blocked")]
    table, more = missed_parts(found, found.chats[:1], None)
    assert more == "1 more: --report FILE writes all 2 into a CSV file."
    assert "blocked" in drawn(table)
    assert "tidegate broadcast missed sale" in drawn(campaign_details(found.campaign, 0))


async def test_a_broadcast_that_reached_everybody_missed_nobody(desk: Desk, gate: Tidegate) -> None:
    await desk.run(people(3), text="Hi", name="sale")

    found = await find_missed(gate, "sale", None)

    assert missed_parts(found, found.chats, None) == ["Nobody was missed by broadcast sale."]
    assert "not reached" not in drawn(campaign_details(found.campaign, 0))


async def test_what_died_for_other_reasons_fails(desk: Desk, telegram: SimulatedTelegram) -> None:
    code, report = await desk.run(people(2), text="Hi", params=["reply_markup=nonsense"])
    assert (code, report["passed"]) == (1, False)
    assert (report["dead"], report["blocked"]) == (2, 0)
    assert telegram.report()["accepted"] == 0


async def test_a_worker_elsewhere_delivers_and_this_one_takes_over_when_it_is_gone(
    desk: Desk, gate: Tidegate, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    gone_at = clock.monotonic() + 15

    async def start_sending(_: Outbox) -> None:
        if clock.monotonic() < gone_at:
            raise NotTheSenderError("process 77 (tidegate worker) sends for a.db: one process at a time does")

    monkeypatch.setattr(type(gate.outbox), "start_sending", start_sending)
    code, report = await desk.run(people(30), text="Hi")

    assert (code, report["delivered"]) == (0, 30)
    assert "process 77 (tidegate worker) sends for a.db\n" in desk.told
    taken_over = "no longer: process 77 (tidegate worker) sends for a.db; this command delivers from now on"
    assert desk.told.count(taken_over) == 1
    assert report["seconds"] > 15


async def test_what_takes_longer_than_it_is_remembered_is_refused(desk: Desk, gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="--remember: 50s is too short: sending takes 36 s or more"):
        await desk.show(people(1030), text="Hi", remember="50s")
    assert (await gate.stats()).waiting == 0


async def test_a_person_at_a_terminal_sees_a_bar(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_watched", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    await desk.show(people(90), text="Hi")
    assert "delivering" in desk.told
    assert "━" in desk.told
    assert "30.0/s" in desk.told


async def test_a_pipe_gets_a_line_every_ten_seconds(desk: Desk) -> None:
    await desk.show(people(900), text="Hi")
    lines = [line for line in desk.told.splitlines() if line.startswith("delivering: ")]
    assert 2 <= len(lines) <= 4
    assert lines[0] == "delivering: 300 of 900, 30.0/s, 20 s left, 0 refused (429)"
    assert "delivered a second" in desk.told


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ({"text": "a", "template": "b"}, "--text and --template exclude each other"),
        ({"text": "Hi {name"}, "--text: the template has a single {"),
        ({"template": "nowhere.txt"}, "--template: cannot read nowhere.txt: no such file"),
        ({"name": "a:b"}, "--name: 'a:b' is not a name"),
        ({"remember": "soon"}, "--remember: 'soon' is not a duration"),
        ({"remember": "0d"}, "--remember: give more than 0"),
        ({"report": "nowhere/report.csv"}, "--report: nowhere/report.csv cannot be written"),
        ({"params": ["text=x"]}, "--param: text is not given this way: use --text"),
        ({"params": ["x"]}, "--param: 'x' has no name"),
        ({"params": ["x=" + "[" * 6000 + "]" * 6000]}, "--param: the value of x is nested too deeply"),
        ({"params": ["x=" + "[" * 101 + "]" * 101]}, "--param: the value of x is nested too deeply"),
        ({"params": [f"x=[{2**64}]"]}, "--param: 'x' has a number that is too large"),
        ({"params": ["x=\udce9"]}, "--param: 'x' is no text in UTF-8"),
        ({"params": ['x="\\ud800"']}, "--param: 'x' is no text in UTF-8"),
        ({"text": "caf\udce9"}, "--text: the text is not valid UTF-8"),
    ],
)
def test_what_is_ordered_wrongly_is_refused_at_once(written: dict[str, Any], complaint: str) -> None:
    order = BroadcastOrder(file="list.csv", **written)

    def take() -> None:
        order.check()
        order.mailing(source_of(people(3)))

    with pytest.raises(BadInputError, match=complaint):
        take()


def test_a_template_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "text.html").write_text("\ufeffHi {name},\nnews!\n", "utf-8")
    order = BroadcastOrder(file="list.csv", template=str(tmp_path / "text.html"))
    letter = next(order.mailing(source_of(people(1))).messages())
    assert isinstance(letter, BroadcastMessage)
    assert letter.fields["text"] == "Hi Person 0,\nnews!"


async def test_skipping_bad_lines_without_a_name_is_refused_as_mending_them_would_send_all_again(
    desk: Desk, gate: Tidegate
) -> None:
    with pytest.raises(
        BadInputError, match="give --name NAME with --skip-bad, so that the corrected lines can"
    ):
        await desk.show(people(3) + "12x,Eve\n", text="Hi {name}", skip_bad=True)
    assert (await gate.stats()).waiting == 0
    assert await desk.show(people(3), text="Hi {name}", skip_bad=True) == 0


async def test_mended_lines_are_sent_under_the_same_name_and_the_others_not_again(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    await desk.show(people(3) + "12x,Eve\n", text="Hi {name}", skip_bad=True, name="may")
    assert "1 bad lines were left out: correct them, and with --name may only they are sent." in desk.told

    code, report = await desk.run(people(3) + "12,Eve\n", text="Hi {name}", name="may")

    assert (code, report["delivered"], report["bad_lines"]) == (0, 4, 0)
    assert telegram.report()["accepted"] == 4
    assert await texts(telegram, 12) == ["Hi Eve"]


async def test_a_parameter_that_is_added_between_two_runs_sends_nobody_anything_twice(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    await desk.run(people(3), text="Hi")
    await desk.run(people(3), text="Hi", params=["disable_notification=true"], allow_duplicates=True)
    assert telegram.report()["accepted"] == 3


async def test_the_reasons_stand_under_the_dead_and_not_under_the_refused(
    desk: Desk, telegram: SimulatedTelegram
) -> None:
    block(telegram, 1001)
    await desk.show(people(3), text="Hi")
    names = [line.strip().rpartition("  ")[0].strip() for line in desk.told.splitlines()]
    dead = names.index("dead")
    assert names[dead : dead + 3] == ["dead", "blocked the bot, or gone", "because: blocked"]
    assert names.index("refused (429)") > dead + 2


async def test_a_report_replaces_an_earlier_one_as_a_whole_and_leaves_nothing_beside_it(
    desk: Desk, telegram: SimulatedTelegram, earlier: Path
) -> None:
    block(telegram, 1001)
    await desk.run(people(3), text="Hi", report=str(earlier))
    content = await asyncio.to_thread(earlier.read_text)
    assert content.splitlines() == ["chat_id,state,reason", "1001,dead,blocked"]
    assert await asyncio.to_thread(os.listdir, earlier.parent) == [earlier.name]


async def test_a_report_that_cannot_be_written_at_the_end_loses_neither_the_old_one_nor_the_outcome(
    desk: Desk, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TidegateError, match=r"was not written \(No space left on device\)"):
        await desk.show(people(3), text="Hi", report=str(earlier))
    assert "delivered" in desk.told
    assert await asyncio.to_thread(earlier.read_text) == EARLIER
    assert await asyncio.to_thread(os.listdir, earlier.parent) == [earlier.name]


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ("list.csv", "is read by this broadcast"),
        ("link.csv", "is read by this broadcast"),
        ("text.html", "is read by this broadcast"),
        ("a.db", "belongs to the store"),
        ("a.db.key", "belongs to the store"),
        ("a.db.lock", "belongs to the store"),
        ("a.db-wal", "belongs to the store"),
        ("a.db-shm", "belongs to the store"),
        ("precious.txt", "exists and is not an earlier report"),
        ("/dev/null", "--report"),
    ],
)
def test_a_report_overwrites_nothing_but_an_earlier_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    # Even a list that looks like an earlier report: it is what is sent to.
    Path("list.csv").write_text("chat_id,state,reason\n5,dead,timeout\n")
    Path("link.csv").symlink_to("list.csv")
    Path("text.html").write_text("Hi")
    Path("precious.txt").write_text("chat_id,state,reasons\n")
    for store in ("a.db", f"sqlite:///{tmp_path}/a.db"):
        order = BroadcastOrder(file="list.csv", template="text.html", store=store, report=report)
        with pytest.raises(BadInputError, match=complaint):
            order.check()


async def test_the_time_that_is_left_follows_the_recent_pace(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0, 100, 105, 110, 125, 140])
    monkeypatch.setattr(clock, "monotonic", lambda: next(times))
    pace = CountRate(clock)
    for count in (0, 0, 50, 100):
        pace.read(count)
    assert pace.words(200) == "10.0/s, 10 s left"
    pace.read(100)
    pace.read(100)
    assert pace.words(200) == "no progress"
