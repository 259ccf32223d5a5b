"""What an operator sees of messages and of the queue."""

import io
import json
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from tidegate.cli import queue as queue_stats
from tidegate.cli.messages import COUNTED, amount, counted, record_details, record_table
from tidegate.cli.queue import (
    OPEN,
    MessageChoice,
    check_choice,
    states_of,
    which_bots,
    why_lines,
)
from tidegate.cli.terminal import confirm
from tidegate.cli.times import moment
from tidegate.errors import BadInputError
from tidegate.model import BotId, File, Message, Record, State, TicketId, Why
from tidegate.ops.reports import SENDER_COUNTS, StoreFacts, record_json, stats_report, why_report
from tidegate.outbox.port import OutboxStats
from tidegate.stores.sqlite.sender_lock import SenderProcess
from tidegate.stores.store import StoreActivity

NOW = 1_800_000_000.0


def record(**known: Any) -> Record:  # noqa: ANN401  (a record's own)
    message = Message(
        id=TicketId("0123456789ab-0000001f"),
        bot=BotId(42),
        chat_id=-1001234567890,
        method="sendMessage",
        params=known.pop("params", {"text": "Hello"}),
        **known.pop("message", {}),
    )
    given: dict[str, Any] = {"message": message, "state": State.QUEUED, "created_at": NOW - 180}
    return Record(**given | known)


def drawn(picture: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_row_keeps_its_id_whole_and_cuts_the_text() -> None:
    shown = drawn(record_table([record(params={"text": "long " * 50})], NOW))

    row = shown.splitlines()[-1]
    assert "0123456789ab-0000001f" in row
    assert "-1001234567890" in row
    assert "3 min ago" in row
    assert row.endswith("…")
    assert len(row) <= 80


def test_details_show_what_is_known_and_leave_out_what_is_not() -> None:
    shown = drawn(
        record_details(
            record(
                state=State.DEAD,
                reason="blocked",
                description="Forbidden",
                attempts=2,
                settled_at=NOW - 60,
                message={"dedup_key": "order-7", "expires_at": NOW + 60},
            ),
            NOW,
        )
    )

    for part in ("dead", "blocked", "Forbidden", "order-7", '"text": "Hello"', "(3 min ago)", "(in 60 s)"):
        assert part in shown
    assert "coalesce_key" not in shown
    assert "urgent" not in shown


def test_the_bot_is_shown_where_there_are_several() -> None:
    one = record()
    other = msgspec.structs.replace(one, message=msgspec.structs.replace(one.message, bot=BotId(43)))

    assert "bot" not in drawn(record_table([one], NOW))
    assert " 43 " in drawn(record_table([one, other], NOW))


def test_texts_cannot_steer_the_terminal() -> None:
    evil = record(params={"text": "\x1b[2J\u202egone"}, description="\x07bell", reason="\x1b]0;x")

    for shown in (drawn(record_table([evil], NOW)), drawn(record_details(evil, NOW))):
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown


def test_markup_in_a_text_is_text() -> None:
    assert "[red]x[/red]" in drawn(record_table([record(params={"text": "[red]x[/red]"})], NOW), width=120)


def test_json_of_a_message_is_flat_and_holds_no_file() -> None:
    media = [{"type": "photo", "media": File(content=b"secret" * 100, name="me.png")}]
    plain = record_json(
        record(params={"media": media, "document": File(path="a.pdf")}, result={"message_id": 7})
    )

    assert json.loads(json.dumps(plain)) == plain
    assert plain["params"] == {
        "media": [{"type": "photo", "media": {"file": "me.png", "bytes": 600}}],
        "document": {"file": "a.pdf"},
    }
    assert (plain["id"], plain["state"], plain["created_at"]) == (
        "0123456789ab-0000001f",
        "queued",
        NOW - 180,
    )
    assert plain["result"] == {"message_id": 7}
    assert "message" not in plain


def test_broken_characters_are_no_error() -> None:
    broken = record(params={"text": "half \ud83d"})

    assert "half" in drawn(record_details(broken, NOW))
    assert json.dumps(record_json(broken))


def test_why_names_each_thing_and_the_time() -> None:
    one = record(attempts=2, reason="http_502", state=State.RETRY)
    why = Why(State.RETRY, ("the next attempt is in 5.0 s", "its chat is paused"), 5.0)

    told = why_report(one, why, NOW)
    shown = why_lines(one, why, NOW)

    assert (told["expected_in"], told["expected_at"]) == (5.0, NOW + 5)
    assert "tried 2 times (http_502)" in shown[0]
    assert shown[1] == "  · the next attempt is in 5.0 s"
    assert shown[3].endswith("(in 5 s).")


def test_why_says_with_which_command_a_pause_ends() -> None:
    one = record()
    why = Why(State.QUEUED, ("its bot is paused", "its chat is paused"), None)

    _, of_bot, of_chat, _ = why_lines(one, why, NOW)

    assert of_bot.endswith(f"paused: tidegate queue resume --bot {one.message.bot}")
    assert of_chat.endswith(f"--bot {one.message.bot} --chat {one.message.chat_id}")


def test_why_does_not_promise_a_time_that_depends_on_someone() -> None:
    why = Why(State.QUEUED, ("its bot is paused",), None)

    assert "depends on a person or a process" in why_lines(record(), why, NOW)[-1]


def test_why_does_not_say_that_something_is_being_sent_where_nobody_sends() -> None:
    left = record(state=State.SENDING)

    shown = why_lines(left, Why(State.SENDING, ("nobody sends: start a worker",), None), NOW)

    assert "was being sent when its sender stopped" in shown[0]
    assert shown[1] == "  · nobody sends: start a worker"


@pytest.mark.parametrize("state", [state for state in State if state not in OPEN - {State.SENDING}])
def test_why_says_what_became_of_what_does_not_wait(state: State) -> None:
    ended = record(state=state, settled_at=NOW - 60, reason="blocked", description="{curly}")

    [line] = why_lines(ended, Why(state, (), None), NOW)

    told = {
        State.DEAD: "dlq replay 0123456789ab-0000001f",
        State.PARKED: "may have arrived",
        State.SENDING: "right now",
    }
    assert told.get(state, "60 s ago") in line
    assert ("{curly}" in line) == (state in {State.DEAD, State.PARKED})


def test_stats_have_the_keys_of_the_api_and_say_that_nobody_sends() -> None:
    told = stats_report(
        OutboxStats(high=1, normal=2, low=3, retry=4, dead=5, parked=6, refused=7),
        StoreFacts(StoreActivity(), [BotId(42)], [(BotId(42), None), (BotId(42), -5)]),
    )

    assert told["stats"] == {"high": 1, "normal": 2, "low": 3, "retry": 4, "dlq": 11}
    assert (told["total_queued"], told["total_failed"]) == (10, 11)
    assert (told["dead"], told["parked"], told["refused"]) == (5, 6, 7)
    assert told["sender"] is None
    shown = drawn(queue_stats.stats_picture(told), width=100)
    assert "none runs, so nothing is sent" in shown
    assert "bot 42: tidegate queue resume --bot 42" in shown
    assert "bot 42, chat -5: tidegate queue resume --bot 42 --chat -5" in shown


def test_of_a_store_that_many_share_the_stats_say_how_many_and_what_is_spooled() -> None:
    told = stats_report(OutboxStats(spooled=7), StoreFacts(StoreActivity(processes=3, delivers=True), [], []))
    alone = stats_report(OutboxStats(), StoreFacts(StoreActivity(processes=0), [], []))

    assert (told["processes"], told["delivers"], told["spooled"]) == (3, True, 7)
    assert "3" in drawn(queue_stats.stats_picture(told))
    assert "until Redis takes them" in drawn(queue_stats.stats_picture(told))
    assert "nothing is sent" in drawn(queue_stats.stats_picture(alone))


def test_stats_tell_bots_apart_and_how_long_the_oldest_has_waited() -> None:
    first = OutboxStats(high=2, retry=1, sending=4, delivered=9, oldest_at=NOW - 900)
    by_bot = {BotId(43): OutboxStats(dead=1), BotId(42): first}
    facts = StoreFacts(StoreActivity(), [], [], None, by_bot, NOW)

    told = stats_report(OutboxStats(high=2, retry=1, oldest_at=NOW - 900), facts)

    assert (told["oldest_at"], told["oldest_seconds"]) == (NOW - 900, 900)
    assert [one["bot"] for one in told["by_bot"]] == [42, 43]
    assert (
        told["by_bot"][0] | {"bot": 42, "waiting": 3, "high": 2, "oldest_seconds": 900} == told["by_bot"][0]
    )
    assert (told["by_bot"][1]["dead"], told["by_bot"][1]["oldest_seconds"]) == (1, None)
    shown = drawn(queue_stats.stats_picture(told), width=100)
    assert "15 min   since the first of them could have gone" in shown
    assert "high 2 · retry 1 · sending 4 · delivered 9 · oldest 15 min" in shown
    assert "bot 43" in shown


def test_stats_name_the_sender() -> None:
    told = stats_report(
        OutboxStats(), StoreFacts(StoreActivity(sender=SenderProcess(321, "tidegate worker")), [], [])
    )

    assert told["sender"] == {"pid": 321, "command": "tidegate worker"}
    assert "process 321 (tidegate worker)" in drawn(queue_stats.stats_picture(told))


def test_the_list_shows_what_is_open_unless_told_otherwise() -> None:
    assert states_of([]) == {State.QUEUED, State.RETRY, State.SENDING}
    assert states_of(["dead", "parked"]) == {State.DEAD, State.PARKED}
    assert states_of(["dead", "any"]) == frozenset(State)


def test_every_bot_is_meant_if_none_is_named() -> None:
    known = [BotId(42), BotId(43)]

    assert which_bots(known, None) == known
    assert which_bots(known, 43) == [43]
    with pytest.raises(BadInputError, match="knows no bot 7: it knows 42, 43"):
        which_bots(known, 7)
    with pytest.raises(BadInputError, match="knows no bot yet"):
        which_bots([], None)


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (MessageChoice([], everything=False, bot=None, chat=None), "say which messages"),
        (MessageChoice(["a"], everything=True, bot=None, chat=None), "either ids, or"),
        (MessageChoice(["a"], everything=False, bot=None, chat="5"), "either ids, or"),
    ],
)
def test_cancel_wants_to_know_what(which: MessageChoice, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        check_choice(which)


def test_large_numbers_are_not_counted_to_the_end() -> None:
    assert counted(1, "message") == "1 message"
    assert counted(COUNTED, "message") == "10,000 messages"
    assert counted(COUNTED + 1, "message") == "more than 10,000 messages"
    assert amount(50_000, "message") == "50,000 messages"  # what was done is known


def test_where_nobody_can_be_asked_yes_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    confirm("Drop 3 letters?", yes=True)
    with pytest.raises(BadInputError, match=r"Drop 3 letters\? Not a terminal: pass --yes"):
        confirm("Drop 3 letters?", yes=False)


def test_every_number_of_the_store_is_in_the_report() -> None:
    of_the_sender = set(SENDER_COUNTS)
    numbers = msgspec.structs.asdict(OutboxStats())
    told = stats_report(OutboxStats(), StoreFacts(StoreActivity(), [], []))

    assert set(numbers) - of_the_sender <= set(told) | set(told["stats"])


def test_why_shows_a_long_time_as_a_date() -> None:
    far, soon = "its time comes in 864000.0 s", "the next attempt is in 5.0 s"

    shown = why_lines(record(), Why(State.QUEUED, (far, soon), 864_000.0), NOW)

    assert shown[1] == f"  · its time comes {moment(NOW + 864_000, NOW)}"
    assert shown[1].endswith("(in 10 d)")
    assert shown[2] == f"  · {soon}"
