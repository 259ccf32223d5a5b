"""A store is copied while it is in use, and put back without sending twice what was delivered."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from system.operators import Desk, telegram
from tidegate import Tidegate
from tidegate.clock import Clock

chats = count(2_000_001)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture
def desk(tmp_path: Path, address: str) -> Desk:
    desk = Desk(tmp_path, address)
    desk.begin()
    return desk


def test_what_was_delivered_since_the_backup_is_not_sent_again_unless_an_operator_says_so(desk: Desk) -> None:
    chat, late = next(chats), next(chats)
    [sent] = desk.put(chat)
    copied = desk.run("backup", "copy.db")
    assert (copied.returncode, copied.stderr) == (0, "")
    assert "key that decrypts the bots' tokens is not in it" in copied.stdout
    desk.deliver_all()
    [lost] = desk.put(late)

    restored = desk.run("restore", "copy.db", "--park", "--yes")
    assert (restored.returncode, restored.stderr) == (0, "")
    assert "Parked 1 message that waited." in restored.stdout
    assert "tidegate.db.before-restore" in restored.stdout
    assert f"message {lost} is not known" in desk.complains("queue", "show", lost)
    desk.deliver_all()
    assert desk.arrived(chat) == 1

    assert desk.told("dlq", "replay", "--all") == {"replayed": 0}  # parked ones have to be named
    code, said, warned = desk.quickly("dlq", "replay", "--state", "parked", "--reason", "restored")
    assert (code, said) == (0, "Replayed 1 letter.\n")
    assert "parked messages may have been delivered already" in warned
    desk.deliver_all()
    assert desk.arrived(chat) == 2
    assert desk.told("queue", "show", sent)["state"] == "delivered"


def test_what_waited_is_sent_if_the_operator_says_so(desk: Desk) -> None:
    chat = next(chats)
    desk.put(chat)
    desk.told("backup", "copy.db")
    desk.store.unlink()

    assert desk.told("restore", "copy.db", "--resend") == {
        "store": str(desk.store),
        "parked": 0,
        "moved_to": None,
    }
    desk.deliver_all()

    assert desk.arrived(chat) == 1


def test_a_store_in_use_is_copied_and_not_replaced(desk: Desk) -> None:
    with desk.worker() as worker:
        desk.put(next(chats))
        assert desk.told("backup", "copy.db")["bytes"] > 0

        refused = desk.complains("restore", "copy.db", "--park", "--yes", code=1)

        assert f"process {worker.pid} (" in refused
        assert "stop it, then restore" in refused
    assert desk.told("restore", "copy.db", "--park", "--yes")["moved_to"] is not None


def test_a_program_that_only_puts_messages_is_in_the_way_too(desk: Desk) -> None:
    desk.told("backup", "copy.db")

    async def refused_meanwhile(gate: Tidegate) -> str:
        await gate.send(bot=42, chat_id=next(chats), text="x")
        return (await asyncio.to_thread(desk.run, "restore", "copy.db", "--park", "--yes")).stderr

    assert "open: stop whatever uses it, then restore" in desk.within(refused_meanwhile)


def test_what_cannot_be_restored_leaves_the_store_as_it_is(desk: Desk) -> None:
    [ticket] = desk.put(next(chats), not_before=Clock().now() + 300 * 86_400)
    desk.told("backup", "copy.db")
    copy = desk.folder / "copy.db"
    (desk.folder / "cut.db").write_bytes(copy.read_bytes()[:6_000])
    (desk.folder / "text.db").write_text("hello\n" * 2_000)
    before = desk.store.read_bytes()

    for arguments, told in (
        (["copy.db"], "pass --park to hold them back until you decide, or --resend"),
        (["copy.db", "--park", "--resend"], "pass one of them"),
        (["copy.db", "--park"], "Not a terminal: pass --yes"),
        (["cut.db", "--park", "--yes"], "cut.db is damaged: use an earlier backup"),
        (["text.db", "--park", "--yes"], "text.db is not a store of Tidegate"),
        (["none.db", "--park", "--yes"], "there is no file none.db"),
        (["tidegate.db", "--park", "--yes"], "tidegate.db is the store itself"),
        ([".", "--park", "--yes"], "is a folder"),
        (["copy.db", "--park", "--store", "no/where.db"], "there is no folder"),
        # Before any question: there is nothing to restore.
        (["text.db", "--park"], "text.db is not a store of Tidegate"),
        (["none.db", "--park"], "there is no file none.db"),
    ):
        assert told in desk.complains("restore", *arguments)
    assert "copy.db exists" in desk.complains("backup", "copy.db")
    assert "there is no store at none.db" in desk.complains("backup", "b.db", "--store", "none.db")

    assert desk.store.read_bytes() == before
    assert desk.told("queue", "show", ticket)["state"] == "queued"
    names = {path.name for path in desk.folder.iterdir()}
    assert names <= {"copy.db", "cut.db", "text.db", *(f"tidegate.db{end}" for end in ("", ".key", ".lock"))}
