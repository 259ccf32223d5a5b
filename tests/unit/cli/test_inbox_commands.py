"""What an operator sees of parked updates, and what is done to those that are named."""

import asyncio
import base64
import io
import json
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from tidegate.cli.inbox import (
    InboxView,
    UpdateChoice,
    app,
    choose,
    picture,
    source_of,
    update_details,
    update_json,
)
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.inbox import InboxItem, InboxSource, InboxStats, ParkedItem, bot_source, hook_source
from tidegate.inbound.signed_hooks import HookEvent, event_item
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.memory.inbox import MemoryInbox
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.sender_lock import SenderLock

BOT, OTHER_BOT, HOOK = bot_source(42), bot_source(43), hook_source("payments")
NOW = 1_800_000_000.0
REASON = "ValueError: no such town (handlers/weather.py:31)"


async def park(inbox: MemoryInbox | SqliteInbox, source: InboxSource, *keys: str) -> None:
    for key in keys:
        await park_this(inbox, InboxItem(source, key, "7", b'{"update_id": 1}'))


async def park_this(inbox: MemoryInbox | SqliteInbox, arrival: InboxItem, reason: str = REASON) -> None:
    await inbox.accept([arrival])
    [held] = await inbox.claim([arrival.source], 1, suspects=1)
    await inbox.park(held, reason)


def event(body: bytes = b'{"order": 7}') -> InboxItem:
    return event_item(HookEvent("payments", "evt_1", NOW - 301, NOW - 300, {"user-agent": "Bank/1"}, body))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three are parked, of two bots and a hook, and one waits."""
    path = tmp_path / "tidegate.db"

    async def make(clock: VirtualClock) -> None:
        file = StoreFile(path)
        await file.open()
        inbox = SqliteInbox(file, clock)
        await inbox.open()
        await park(inbox, BOT, "1")
        await park(inbox, OTHER_BOT, "1")
        await park_this(inbox, event())
        await inbox.accept([InboxItem(BOT, "2", "7", b"{}")])
        await file.close()

    run(make)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_STORE", raising=False)
    return path


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def answer(runner: CliRunner, *arguments: str) -> dict[str, object]:
    result = runner.invoke(app, [*arguments, "--json"], catch_exceptions=False)
    found: dict[str, object] = json.loads(result.stdout)
    return found


def listed(runner: CliRunner, *arguments: str) -> list[tuple[str, str]]:
    parked = answer(runner, *arguments)["parked"]
    assert isinstance(parked, list)
    return [(one["source"], one["key"]) for one in parked]


@pytest.mark.usefixtures("store")
def test_parked_ones_are_listed_with_their_reasons_and_how_many_are_where(runner: CliRunner) -> None:
    found = answer(runner)

    assert found["stats"] == {"waiting": 1, "handling": 0, "parked": 3}
    assert listed(runner) == [(HOOK, "evt_1"), (OTHER_BOT, "1"), (BOT, "1")]
    assert listed(runner, "--bot", "42") == [(BOT, "1")]
    assert listed(runner, "--hook", "payments") == [(HOOK, "evt_1")]
    assert answer(runner, "--limit", "2")["more"]
    assert REASON in str(found["parked"])


def test_an_unreadable_update_is_listed_and_shown_by_its_size_and_first_bytes_and_never_replayed(
    runner: CliRunner, store: Path
) -> None:
    async def spoil(clock: VirtualClock) -> None:
        file = StoreFile(store)
        await file.open()
        inbox = SqliteInbox(file, clock)
        await inbox.open()
        await inbox.done(await inbox.claim([BOT], 10, suspects=1))
        await park_this(inbox, InboxItem(BOT, "9", "7", b'\xff{"update_id' * 10), "unreadable: no JSON")
        await file.close()

    run(spoil)

    assert (BOT, "9") in listed(runner)
    shown = answer(runner, "show", "9")
    assert (shown["size"], shown["first_text"]) == (120, repr((b'\xff{"update_id' * 10)[:48]))
    assert base64.b64decode(str(shown["body"])) == b'\xff{"update_id' * 10
    assert "120 bytes" in runner.invoke(app, ["show", "9"], catch_exceptions=False).stdout
    with pytest.raises(BadInputError, match="9 of bot 42 cannot be read"):
        runner.invoke(app, ["replay", "9"], catch_exceptions=False)
    assert answer(runner, "replay", "--all") == {"replayed": 3, "unreadable": 1}
    assert listed(runner) == [(BOT, "9")]
    assert answer(runner, "drop", "9", "--yes") == {"dropped": 1}


@pytest.mark.usefixtures("store")
def test_the_list_can_be_asked_for_by_its_name(runner: CliRunner) -> None:
    assert answer(runner, "list", "--bot", "42") == answer(runner, "--bot", "42")
    assert listed(runner, "list", "--limit", "1") == [(HOOK, "evt_1")]


@pytest.mark.usefixtures("store")
def test_one_is_shown_in_full(runner: CliRunner) -> None:
    shown = answer(runner, "show", "evt_1")
    assert (shown["body"], shown["headers"]) == ('{"order": 7}', {"user-agent": "Bank/1"})
    assert (shown["timestamp"], shown["reason"]) == (NOW - 301, REASON)
    assert answer(runner, "show", "1", "--bot", "43")["source"] == OTHER_BOT

    printed = runner.invoke(app, ["show", "1", "--bot", "42"], catch_exceptions=False).stdout
    assert all(part in printed for part in ("bot 42", "weather.py:31", '"update_id": 1'))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("key", "told"), [("9", "9 is not parked"), ("1", "bot 42, bot 43|bot 43, bot 42")])
def test_one_that_is_not_there_or_could_be_several_is_not_shown(
    runner: CliRunner, key: str, told: str
) -> None:
    with pytest.raises(BadInputError, match=told):
        runner.invoke(app, ["show", key], catch_exceptions=False)


@pytest.fixture
def in_hand(store: Path) -> Path:
    """The one that waited was taken, and is not done."""

    async def claim(clock: VirtualClock) -> None:
        file = StoreFile(store)
        await file.open()
        inbox = SqliteInbox(file, clock)
        await inbox.open()
        assert await inbox.claim([BOT], 1, suspects=1)
        await file.close()

    run(claim)
    return store


@pytest.mark.usefixtures("in_hand")
def test_what_a_process_that_ended_had_in_hand_is_told_apart(runner: CliRunner) -> None:
    counts, left, *_ = runner.invoke(app, [], catch_exceptions=False).stdout.splitlines()

    assert counts == "0 wait, 0 are being handled, 3 parked"
    assert left == "1 was being handled by a process that ended: it is handled at the next start"
    assert answer(runner)["left_behind"] == 1


def test_what_a_process_that_runs_has_in_hand_is_being_handled(runner: CliRunner, in_hand: Path) -> None:
    lock = SenderLock(in_hand)
    asyncio.run(lock.take(Clock()))
    try:
        counts, after, *_ = runner.invoke(app, [], catch_exceptions=False).stdout.splitlines()
        assert (counts, after) == ("0 wait, 1 is being handled, 3 parked", "")
        assert answer(runner)["left_behind"] == 0
    finally:
        asyncio.run(lock.release())


@pytest.mark.usefixtures("store")
def test_what_is_replayed_waits_again(runner: CliRunner) -> None:
    assert answer(runner, "replay", "1", "--bot", "42") == {"replayed": 1, "unreadable": 0}

    assert listed(runner) == [(HOOK, "evt_1"), (OTHER_BOT, "1")]
    assert answer(runner)["stats"] == {"waiting": 2, "handling": 0, "parked": 2}


@pytest.mark.usefixtures("store")
def test_what_is_dropped_is_gone(runner: CliRunner) -> None:
    assert answer(runner, "drop", "evt_1", "--yes") == {"dropped": 1}
    assert answer(runner, "drop", "--all", "--yes") == {"dropped": 2}

    assert answer(runner)["stats"] == {"waiting": 1, "handling": 0, "parked": 0}


@pytest.mark.usefixtures("store")
def test_nothing_is_dropped_unless_somebody_is_sure(runner: CliRunner) -> None:
    result = runner.invoke(app, ["drop", "--all"])

    assert isinstance(result.exception, BadInputError)
    assert "Drop 3 items for good? Not a terminal: pass --yes" in str(result.exception)
    assert len(listed(runner)) == 3


@pytest.mark.usefixtures("store")
def test_an_option_before_a_command_is_not_passed_over(runner: CliRunner) -> None:
    for option in (["--bot", "43"], ["--limit", "1"], ["--json"]):
        assert runner.invoke(app, [*option, "replay", "--all"]).exit_code == 2

    assert len(listed(runner)) == 3


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (UpdateChoice(), "say which items: their keys, as shown by tidegate inbox, or --all"),
        (UpdateChoice(["1"], everything=True), "give either keys or --all"),
        (UpdateChoice(["9"]), "9 is not parked: see tidegate inbox"),
        (UpdateChoice(["2"], bot=43), "2 is not parked"),
        (UpdateChoice(["1"]), "1 is parked for bot 42, bot 43: say which one with --bot or --hook"),
        (UpdateChoice(["1"], bot=42, hook="payments"), "give either --bot or --hook"),
    ],
)
async def test_what_cannot_be_meant_is_told(clock: VirtualClock, which: UpdateChoice, told: str) -> None:
    inbox = MemoryInbox(clock)
    await park(inbox, BOT, "1", "2")
    await park(inbox, OTHER_BOT, "1")

    with pytest.raises(BadInputError, match=told):
        await choose(inbox, which)


async def test_those_meant_come_the_oldest_first(clock: VirtualClock) -> None:
    inbox = MemoryInbox(clock)
    await park(inbox, BOT, "3", "1", "2")

    assert [one.item.key for one in await choose(inbox, UpdateChoice(["2", "3"]))] == ["3", "2"]
    assert [one.item.key for one in await choose(inbox, UpdateChoice(everything=True))] == ["3", "1", "2"]


async def test_a_key_may_be_shortened_while_it_is_clear(clock: VirtualClock) -> None:
    inbox = MemoryInbox(clock)
    await park(inbox, BOT, "8150", "8151", "9")

    assert [one.item.key for one in await choose(inbox, UpdateChoice(["9"]))] == ["9"]
    assert [one.item.key for one in await choose(inbox, UpdateChoice(["8151"]))] == ["8151"]
    with pytest.raises(BadInputError, match="81 is the beginning of 8150, 8151: write more of it"):
        await choose(inbox, UpdateChoice(["81"]))


def test_a_source_is_named_by_its_bot_or_its_hook() -> None:
    assert source_of(None, None) is None
    assert source_of(42, None) == BOT
    assert source_of(None, "payments") == HOOK


def drawn(seen: InboxView, limit: int = 20) -> str:
    return printed(picture(seen, limit, NOW))


def printed(picture: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def parked(key: str = "815", reason: str = REASON) -> ParkedItem:
    return ParkedItem(InboxItem(BOT, key, "-1001234567890", b"{}"), NOW - 300, NOW - 180, reason)


def parked_event(body: bytes) -> ParkedItem:
    return ParkedItem(event(body), NOW - 300, NOW - 180, REASON)


def test_a_row_says_whose_which_where_when_and_why() -> None:
    shown = drawn(InboxView(InboxStats(3, 2, 1), [parked()]))

    assert shown.startswith("3 wait, 2 are being handled, 1 parked\n")
    row = shown.splitlines()[4]
    assert all(part in row for part in ("bot 42", "815", "-1001234567890", "3 min ago", "ValueError"))


def test_a_long_reason_is_wrapped_and_whole() -> None:
    reason = "KeyError: " + "'town' " * 20 + "(handlers/" + "deep/" * 20 + "weather.py:31)"
    lines = drawn(InboxView(InboxStats(0, 0, 1), [parked(reason=reason)])).splitlines()

    start = lines[2].index("reason")
    assert "".join(line[start:].strip() for line in lines[4:]).replace(" ", "") == reason.replace(" ", "")
    assert max(map(len, lines)) <= 80


def test_events_are_of_no_chat() -> None:
    alone = drawn(InboxView(InboxStats(0, 0, 1), [parked_event(b"")]))
    assert "chat" not in alone
    assert alone.count("evt_1") == 1


def test_what_people_send_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in drawn(InboxView(InboxStats(0, 0, 1), [parked("\x1b[31m", "\x1b[2J")]))
    assert "\x1b" not in printed(update_details(parked_event(b"a \x1b[2J\n b"), NOW))
    assert "\x1b" not in printed(update_details(parked_event(b'{"a": "\\u001b[2J"}'), NOW))


def test_one_and_none_are_counted_as_people_say_it() -> None:
    assert drawn(InboxView(InboxStats(1, 1, 0), [])) == "1 waits, 1 is being handled, 0 parked\n"
    assert (
        drawn(InboxView(InboxStats(0, 0, 0), [], is_left=True)) == "0 wait, 0 are being handled, 0 parked\n"
    )
    left = drawn(InboxView(InboxStats(0, 2, 0), [], is_left=True))
    assert "2 were being handled by a process that ended: they are handled at the next start" in left
    assert "No parked item is of this source." in drawn(InboxView(InboxStats(0, 0, 2), []))


def test_that_there_are_more_is_said() -> None:
    assert "newest 1; for more: --limit" in drawn(
        InboxView(InboxStats(0, 0, 2), [parked("1"), parked("2")]), 1
    )


def test_an_update_is_given_as_an_object() -> None:
    one = ParkedItem(InboxItem(BOT, "1", "7", b'{"update_id": 1, "poll": {"id": "9"}}'), NOW, NOW, REASON)
    assert update_json(one)["body"] == {"update_id": 1, "poll": {"id": "9"}}


def test_an_event_is_given_as_it_was_sent() -> None:
    text, data = update_json(parked_event("Zoë".encode())), update_json(parked_event(b"\xff\x00"))

    assert (text["body"], text["encoding"]) == ("Zoë", "utf-8")
    assert (base64.b64decode(data["body"]), data["encoding"]) == (b"\xff\x00", "base64")
    assert (text["headers"], text["timestamp"]) == ({"user-agent": "Bank/1"}, NOW - 301)


@pytest.mark.parametrize("source", [BOT, HOOK])
def test_a_record_that_cannot_be_read_is_shown_as_it_is(source: InboxSource) -> None:
    one = ParkedItem(InboxItem(source, "1", "1", b"spoiled"), NOW, NOW, REASON)
    assert update_json(one)["body"] == "spoiled"
    assert "spoiled" in printed(update_details(one, NOW))


def test_everything_known_of_an_event_is_shown() -> None:
    shown = printed(update_details(parked_event(b'{"order": 7}'), NOW))
    for part in (
        "hook payments",
        "evt_1",
        "5 min ago",
        "3 min ago",
        REASON,
        "user-agent: Bank/1",
        '"order": 7',
    ):
        assert part in shown
    assert "chat" not in shown
    assert "body, in base64\n  1e12\n" in printed(update_details(parked_event(base64.b64decode("1e12")), NOW))
