"""What an operator sees of parked updates, and what is done to those that are named."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tidegate.cli.inbox.choice import Which, choose, source_of
from tidegate.cli.inbox.commands import app
from tidegate.cli.inbox.looks import Seen, picture
from tidegate.errors import BadInputError
from tidegate.inbound.arrivals import Arrival, Parked, Source, bot_source, hook_source
from tidegate.inbound.inbox.base import InboxStats
from tidegate.inbound.inbox.memory import MemoryInbox
from tidegate.inbound.inbox.sqlite import SqliteInbox
from tidegate.outbox.sqlite.file import StoreFile
from tidegate.sim.virtual import VirtualClock, run

BOT, OTHER_BOT, HOOK = bot_source(42), bot_source(43), hook_source("payments")
NOW = 1_800_000_000.0
REASON = "ValueError: no such town (handlers/weather.py:31)"


async def park(inbox: MemoryInbox | SqliteInbox, source: Source, *keys: str, lane: str = "7") -> None:
    for key in keys:
        await inbox.accept([Arrival(source, key, lane, b'{"update_id": 1}')])
        [held] = await inbox.claim([source], 1, suspects=1)
        await inbox.park(held, REASON)


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
        await park(inbox, HOOK, "evt_1")
        await inbox.accept([Arrival(BOT, "2", "7", b"{}")])
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


# --- the commands ---


@pytest.mark.usefixtures("store")
def test_parked_ones_are_listed_with_their_reasons_and_how_many_are_where(runner: CliRunner) -> None:
    found = answer(runner)

    assert found["stats"] == {"waiting": 1, "handling": 0, "parked": 3}
    assert listed(runner) == [(HOOK, "evt_1"), (OTHER_BOT, "1"), (BOT, "1")]
    assert listed(runner, "--bot", "42") == [(BOT, "1")]
    assert listed(runner, "--hook", "payments") == [(HOOK, "evt_1")]
    assert answer(runner, "--limit", "2")["more"]
    assert REASON in str(found["parked"])


@pytest.mark.usefixtures("store")
def test_what_is_replayed_waits_again(runner: CliRunner) -> None:
    assert answer(runner, "replay", "1", "--bot", "42") == {"replayed": 1}

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
    assert "Drop 3 arrivals for good? Nobody can be asked here: add --yes" in str(result.exception)
    assert len(listed(runner)) == 3


@pytest.mark.usefixtures("store")
def test_an_option_before_a_command_is_not_passed_over(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--bot", "43", "replay", "--all"])

    assert result.exit_code == 2
    assert len(listed(runner)) == 3


# --- which are meant ---


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (Which(), "say which ones: their keys as tidegate inbox shows them, or --all"),
        (Which(["1"], everything=True), "give either keys or --all"),
        (Which(["9"]), "9 is not parked: look with tidegate inbox"),
        (Which(["2"], bot=43), "2 is not parked"),
        (Which(["1"]), "1 is parked for bot 42, bot 43: say which one with --bot or --hook"),
        (Which(["1"], bot=42, hook="payments"), "give either --bot or --hook"),
    ],
)
async def test_what_cannot_be_meant_is_told(clock: VirtualClock, which: Which, told: str) -> None:
    inbox = MemoryInbox(clock)
    await park(inbox, BOT, "1", "2")
    await park(inbox, OTHER_BOT, "1")

    with pytest.raises(BadInputError, match=told):
        await choose(inbox, which)


async def test_those_meant_come_the_oldest_first(clock: VirtualClock) -> None:
    inbox = MemoryInbox(clock)
    await park(inbox, BOT, "3", "1", "2")

    assert [one.arrival.key for one in await choose(inbox, Which(["2", "3"]))] == ["3", "2"]
    assert [one.arrival.key for one in await choose(inbox, Which(everything=True))] == ["3", "1", "2"]


def test_a_source_is_named_by_its_bot_or_its_hook() -> None:
    assert source_of(None, None) is None
    assert source_of(42, None) == BOT
    assert source_of(None, "payments") == HOOK


# --- what is shown ---


def drawn(seen: Seen, limit: int = 20) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(picture(seen, limit, NOW))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def parked(key: str = "815", reason: str = REASON) -> Parked:
    return Parked(Arrival(BOT, key, "7", b"{}"), NOW - 300, NOW - 180, reason)


def test_a_row_says_whose_which_when_and_why() -> None:
    shown = drawn(Seen(InboxStats(3, 1, 1), [parked(reason="long " * 50)]))

    assert shown.startswith("3 wait, 1 are handled now, 1 parked\n")
    row = shown.splitlines()[-1]
    assert all(part in row for part in ("bot 42", "815", "3 min ago", "long long"))
    assert row.endswith("…")
    assert len(row) <= 80


def test_what_people_send_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in drawn(Seen(InboxStats(0, 0, 1), [parked("\x1b[31m", "\x1b[2J")]))


def test_nothing_parked_is_said_in_a_line() -> None:
    assert drawn(Seen(InboxStats(0, 0, 0), [])) == "0 wait, 0 are handled now, 0 parked\n"
    assert "None of those that are parked is of this source." in drawn(Seen(InboxStats(0, 0, 2), []))


def test_that_there_are_more_is_said() -> None:
    assert "newest 1; there are more" in drawn(Seen(InboxStats(0, 0, 2), [parked("1"), parked("2")]), 1)
