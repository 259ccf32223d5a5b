"""Whatever an operator asks wrongly gets one line on stderr, and exit code 2; nothing is made or changed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.schema import MIGRATIONS


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, in the folder where the commands are run."""
    path = tmp_path / "tidegate.db"

    async def make(clock: VirtualClock) -> None:
        outbox = SqliteOutbox(path, clock)
        await outbox.open()
        await outbox.close()

    run(make)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_STORE", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    return path


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(arguments)
    output = capsys.readouterr()
    assert (code, output.out) == (2, ""), output.err
    (line,) = output.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("queue show nobody", "message nobody is not known here"),
        ("queue why nobody", "see tidegate queue list"),
        ("queue cancel nobody", "message nobody is not known here"),
        ("queue cancel", "say which messages: their ids, --chat CHAT, --bot N or --all"),
        ("queue cancel a --all", "give either ids, or"),
        ("queue cancel --chat me", "--chat: chat_id 'me' is no chat"),
        ("queue list --chat 0", "--chat: chat_id 0 is no chat"),
        ("queue list --state lost", "--state: 'lost' is not one of"),
        ("queue list --limit 0", "--limit: "),
        ("queue list --bot me", "--bot: "),
        ("queue pause", "the store knows no bot yet"),
        ("queue resume --bot 42", "the store knows no bot yet"),
        ("queue pause --chat x", "--chat: chat_id 'x' is no chat"),
        ("dlq show nobody", "message nobody is not known here"),
        ("dlq list --older-than 2", "--older-than: '2' is not a duration"),
        ("dlq list --state delivered", "--state: "),
        ("dlq replay", "say which letters"),
        ("dlq drop", "say which letters"),
        ("dlq drop nobody --yes", "message nobody is not known here"),
        ("dlq replay nobody --reason blocked", "give either ids, or a filter"),
        ("dlq drop --chat 0x5 --yes", "--chat: chat_id '0x5' is no chat"),
        ("forget", "see tidegate forget --help"),
        ("forget me --yes", "chat_id 'me' is no chat"),
        ("forget -1001", "pass --yes to confirm"),
        ("forget 5 --nonsense", "see tidegate forget --help"),
        ("backup", "see tidegate backup --help"),
        ("restore", "see tidegate restore --help"),
        ("backup x --store memory://", "this command needs a store in a file"),
        ("send 1 hello --store memory://", "memory:// keeps nothing after a command has ended"),
        ("worker --store memory://", "memory:// keeps nothing after a command has ended"),
        ("bot add --store memory://", "memory:// keeps nothing after a command has ended"),
        ("queue list --store memory://", "memory:// keeps nothing after a command has ended"),
    ],
)
def test_bad_input_is_one_line(
    arguments: str, told: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in store.parent.iterdir()}

    assert told in complaint(capsys, *arguments.split())

    assert {path.name for path in store.parent.iterdir()} == before


COMMANDS = (
    "queue stats",
    "queue list",
    "queue pause --bot 42",
    "queue cancel --all",
    "dlq list",
    "dlq replay --all",
    "forget 5 --yes",
    "backup copy.db",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_is_none_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = store.parent
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    whole = store.read_bytes()
    (folder / "folder").mkdir()
    (folder / "text.db").write_text("hello\n" * 1_000)
    (folder / "cut.db").write_bytes(whole[:6_000])
    (folder / "newer.db").write_bytes(whole)
    with closing(sqlite3.connect(folder / "newer.db")) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with closing(sqlite3.connect(folder / "other.db")) as connection:
        connection.execute("CREATE TABLE messages (id)")

    def refuses(name: str) -> str:
        code = main([*command.split(), "--store", name])
        output = capsys.readouterr()
        assert code in {1, 2}, name
        assert output.out == ""
        (line,) = output.err.splitlines()
        assert name in line
        return line

    assert "there is no store at none.db" in refuses("none.db")
    assert "is a folder" in refuses("folder")
    assert "not a store of Tidegate" in refuses("text.db")
    assert "not a store of Tidegate" in refuses("other.db")
    assert "damaged" in refuses("cut.db")
    if not command.startswith("backup"):  # a copy is a copy
        assert "newer Tidegate" in refuses("newer.db")
    assert not (folder / "none.db").exists()
    assert not (folder / "copy.db").exists()


@pytest.mark.parametrize(
    "arguments",
    ["queue", "queue stats -h", "queue why -h", "dlq", "dlq drop -h", "backup -h", "restore -h", "forget -h"],
)
def test_help_is_no_error(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 0
    assert "Usage: tidegate" in capsys.readouterr().out
