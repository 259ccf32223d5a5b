"""`tidegate history` as an operator runs it, what `tidegate forget` does to it, and a gate that records."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from history_rows import row
from system.operators import Desk, run_here
from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.history import HistoryRow
from tidegate.settings import Settings

NOWHERE = "http://127.0.0.1:1"  # nothing is sent
DAY = 86_400.0
NOW = 1_800_000_000.0

# A conversation in chat 1001, a dead message in a group, and what another bot has received.
ROWS = [
    row(telegram_message_id=1, text="Do you have tea?", direction="in", state="received", user_id=7),
    row(telegram_message_id=2, reply_to_message_id=1, text="Green or black?", ticket="aa-1", attempts=1),
    row(telegram_message_id=2, text="Green, black or white?", is_change=True, kind="editMessageText"),
    row(telegram_message_id=3, reply_to_message_id=2, text="White tea", direction="in", state="received"),
    row(chat_id=-500, text="News", state="dead", reason="kicked", description="Forbidden: …", ticket="aa-2"),
    row(chat_id=3, bot=43, text="tea for two", direction="in", state="received"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A store with some history, for commands that change nothing."""
    desk = Desk(tmp_path_factory.mktemp("history"), NOWHERE)
    desk.begin()
    write(desk, *ROWS)
    return desk


@pytest.fixture
def copy(filled: Desk, tmp_path: Path) -> Desk:
    """The same, for commands that delete."""
    shutil.copytree(filled.folder, tmp_path / "copy")
    return Desk(tmp_path / "copy", NOWHERE)


def write(desk: Desk, *rows: HistoryRow) -> None:
    async def add(gate: Tidegate) -> None:
        await (await gate.history.opened()).write(rows)

    desk.within(add)


def texts(desk: Desk, *options: str) -> list[str]:
    return [message["text"] for message in desk.told("history", "list", *options)["messages"]]


def test_without_a_history_the_command_says_so_and_makes_no_database(tmp_path: Path) -> None:
    desk = Desk(tmp_path, NOWHERE)
    desk.begin()

    code, out, _ = desk.quickly("history", "list")

    assert (code, out.startswith("Nothing is recorded here.")) == (0, True)
    _, out, _ = run_here("history", "list", folder=desk.folder, variables={"TIDEGATE_HISTORY": "off"})
    assert out == "Nothing is recorded: TIDEGATE_HISTORY=off.\n"
    assert desk.told("history", "list") == {"messages": [], "cursor": None}
    assert desk.told("history", "stats")["messages"] == 0
    assert "is not in the history" in desk.complains("history", "show", "1001", "7")
    assert desk.told("history", "purge", "--older-than", "1d", "--yes") == {"purged": 0}
    assert list(tmp_path.glob("*data*")) == []


def test_messages_are_listed_the_newest_first_by_every_filter(filled: Desk) -> None:
    assert texts(filled) == [row.text for row in reversed(ROWS)]
    assert texts(filled, "--bot", "43") == ["tea for two"]
    assert texts(filled, "--chat", "-500") == ["News"]
    assert texts(filled, "--direction", "in", "--chat", "1001") == ["White tea", "Do you have tea?"]
    assert texts(filled, "--state", "dead", "--state", "parked") == ["News"]
    assert texts(filled, "--text", "tea") == ["tea for two", "White tea", "Do you have tea?"]
    assert texts(filled, "--text", "gre* black", "--bot", "42") == [
        "Green, black or white?",
        "Green or black?",
    ]
    assert texts(filled, "--since", "1h") == []
    assert len(texts(filled, "--until", "2020-01-01")) == len(ROWS)
    assert texts(filled, "--since", "2020-01-01 09:00") == []


def test_a_list_goes_on_where_the_last_one_ended(filled: Desk) -> None:
    first = filled.told("history", "list", "--limit", "4")
    assert len(first["messages"]) == 4

    assert texts(filled, "--cursor", first["cursor"]) == ["Green or black?", "Do you have tea?"]
    _, out, _ = filled.quickly("history", "list", "--limit", "4")
    assert f"For more: --cursor {first['cursor']}" in out


def test_a_list_for_people_names_the_chat_the_state_and_what_failed(filled: Desk) -> None:
    _, out, _ = filled.quickly("history", "list")

    assert "→ -500" in out
    assert "kicked: News" in out
    assert "← 1001" in out


def test_a_message_is_shown_with_its_changes_and_its_replies(filled: Desk) -> None:
    found = filled.told("history", "show", "1001", "2")

    assert [one["text"] for one in found["messages"]] == ["Green or black?", "Green, black or white?"]
    assert [one["text"] for one in found["above"]] == ["Do you have tea?"]
    assert [one["text"] for one in found["replies"]] == ["White tea"]
    assert filled.told("history", "show", "aa-1")["replies"] == found["replies"]
    code, out, _ = filled.quickly("history", "show", "1001", "2")
    assert code == 0
    assert "replies to it" in out


def test_a_message_that_died_is_shown_by_its_ticket(filled: Desk) -> None:
    found = filled.told("history", "show", "aa-2")

    assert [one["reason"] for one in found["messages"]] == ["kicked"]
    assert (found["above"], found["replies"]) == ([], [])
    _, out, _ = filled.quickly("history", "show", "aa-2")
    assert "Forbidden: …" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("list", "--since", "soon"), "--since: 'soon' is no time"),
        (("list", "--text", "!!"), "has no word to search for"),
        (("list", "--cursor", "x"), "begin without one"),
        (("list", "--chat", "nobody"), "--chat:"),
        (("show", "1001", "x"), "say which message"),
        (("show", "1001", "99"), "1001 99 is not in the history"),
        (("purge", "--older-than", "old"), "--older-than: 'old' is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(filled: Desk, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in filled.complains("history", *arguments)


def test_statistics_have_the_number_the_span_and_the_size(filled: Desk) -> None:
    found = filled.told("history", "stats")

    assert (found["messages"], found["days"]) == (len(ROWS), 30.0)
    assert found["oldest"] < found["newest"]
    _, out, _ = filled.quickly("history", "stats")
    assert out.startswith("6 messages, ")
    assert "Kept for 30 days." in out
    _, out, _ = run_here("history", "stats", folder=filled.folder, variables={"TIDEGATE_HISTORY": "off"})
    assert "nothing is recorded or purged now" in out


def test_a_purge_asks_first_and_deletes_what_is_older(copy: Desk) -> None:
    write(copy, row(text="of today", created_at=4e9))
    assert "pass --yes" in copy.complains("history", "purge", "--older-than", "30d")

    assert copy.told("history", "purge", "--older-than", "30d", "--yes") == {"purged": len(ROWS)}
    assert texts(copy) == ["of today"]
    assert texts(copy, "--text", "tea") == []


def test_a_chat_that_is_forgotten_is_gone_from_the_history_and_its_file(copy: Desk) -> None:
    found = copy.told("forget", "1001", "--yes")

    assert found["recorded_messages"] == 4
    assert texts(copy) == ["tea for two", "News"]
    assert texts(copy, "--text", "black") == []
    content = (copy.folder / "tidegate-data.db").read_bytes()
    assert b"Green or black" not in content
    assert b"reen" not in content


def test_one_bot_may_be_forgotten_alone(copy: Desk) -> None:
    assert copy.told("forget", "1001", "--bot", "43", "--yes")["recorded_messages"] == 0
    assert len(texts(copy)) == len(ROWS)


class AnsweringWire(BotApiTransport):
    """Takes every message."""

    def __init__(self) -> None:
        self.taken = 0

    async def call(self, *_: object, on_written: Any = None, **__: object) -> ApiAnswer:  # noqa: ANN401
        if on_written is not None:
            on_written()
        self.taken += 1
        return ApiAnswer(200, {"ok": True, "result": {"message_id": self.taken, "chat": {"id": 1001}}})

    async def close(self) -> None:
        pass


def settings(**values: Any) -> Settings:  # noqa: ANN401
    return Settings(**values)


def recorded_by(folder: Path, known: Settings, *, asks: bool) -> list[tuple[str | None, int | None]]:
    """Return what a gate with these settings records of a message and a direct call."""

    async def run() -> list[tuple[str | None, int | None]]:
        gate = Tidegate(folder / "tidegate.db", wire=AnsweringWire(), settings=known)
        gate.add_bot("42:token")
        if asks:
            gate.record_history()
        async with gate, gate.worker():
            await gate.send(chat_id=1001, text="queued")
            await gate.drained()
            await gate.call("sendMessage", {"chat_id": 1001, "text": "direct"})
        async with gate:
            found = await gate.history.list(chat_id=1001)
        return [(message.text, message.telegram_message_id) for message in found.messages[::-1]]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("days", "asks", "texts_too", "found"),
    [
        (None, True, True, [("queued", 1), ("direct", 2)]),
        (7.0, False, True, [("queued", 1), ("direct", 2)]),
        (7.0, False, False, [(None, 1), (None, 2)]),
        (None, False, True, []),
        (0.0, True, True, []),
    ],
    ids=["asked for", "set", "set without texts", "not asked for", "off"],
)
def test_a_gate_records_if_it_is_told_to_and_never_if_it_is_off(
    tmp_path: Path,
    days: float | None,
    asks: bool,  # noqa: FBT001
    texts_too: bool,  # noqa: FBT001
    found: list[Any],
) -> None:
    known = settings(
        tidegate_history=days, tidegate_history_texts=texts_too, tidegate_spool=str(tmp_path / "s")
    )

    assert recorded_by(tmp_path, known, asks=asks) == found
    assert (tmp_path / "tidegate-data.db").exists() == bool(found)


class LastWriter:
    """Uses the database until it is told to stop, as the recorder does that writes the last rows."""

    def __init__(self, gate: Tidegate) -> None:
        self._gate = gate
        self.wrote = False

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        await self._gate.database.ping()
        self.wrote = True

    def notes(self) -> list[str]:
        return []


def test_the_last_rows_find_the_database_open_though_reminders_and_jobs_have_ended(tmp_path: Path) -> None:
    async def run() -> bool:
        gate = Tidegate(tmp_path / "tidegate.db", settings=settings())
        writer = LastWriter(gate)
        gate.add_bot("42:token")
        gate.core.add_companion(writer)
        async with gate:
            await gate.reminders.add(1001, bot=42, text="Hi", at="09:00", every="day", zone="UTC")
            await gate.jobs.opened()
        return writer.wrote

    assert asyncio.run(run())


def test_a_worker_records_by_itself_and_not_if_it_is_off(tmp_path: Path) -> None:
    for name, variables, made in (("on", {}, True), ("off", {"TIDEGATE_HISTORY": "off"}, False)):
        folder = tmp_path / name
        folder.mkdir()
        desk = Desk(folder, NOWHERE)
        desk.begin()
        desk.put(1001, expires_in=0.01)
        code, _, err = run_here("worker", "--drain", "--json", folder=folder, variables=variables)
        assert code == 0, err
        assert (folder / "tidegate-data.db").exists() is made
        states = [message["state"] for message in desk.told("history", "list")["messages"]]
        assert states == (["expired"] if made else [])
