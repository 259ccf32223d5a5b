"""A spool whose disk is full, whose folder is gone, whose files are damaged: what it can keep, it keeps."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from restarts import in_thread
from spools import Machine, Redis, connection, files, message, some
from tidegate.errors import StoreError
from tidegate.model import TicketId
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis import spool_file
from tidegate.stores.redis.spool import Spool


@pytest.fixture
async def machine(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "spool", clock)
    yield machine
    for spool in machine.opened:
        await spool.close()


@pytest.fixture
async def spool(machine: Machine) -> Spool:
    return await machine.process()


def let_grow(spool: Spool, pages: int) -> None:
    [[now]] = connection(spool).execute("PRAGMA page_count").fetchall()
    connection(spool).execute(f"PRAGMA max_page_count = {now + pages}")


async def test_a_full_disk_accepts_nothing_and_loses_nothing(spool: Spool) -> None:
    kept, late, redis = message(), message(), Redis()
    await spool.add([kept])

    await in_thread(let_grow, spool, 0)
    with pytest.raises(StoreError, match="is full: free some space"):
        await asyncio.gather(spool.add([message("x" * 100_000)]), spool.add([message()]))

    assert len(spool) == 1
    await in_thread(let_grow, spool, 1000)
    await spool.add([late])
    await spool.drain(redis.put)
    assert redis.taken == [kept, late]


async def test_a_disk_too_full_to_remove_anything_does_not_stop_the_drain(
    spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    messages, redis = some(300), Redis()
    await spool.add(messages)
    connection(spool).set_authorizer(
        lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_DELETE else sqlite3.SQLITE_OK
    )

    assert await spool.drain(redis.put) == 300

    assert redis.taken == messages
    assert "stay in the spool" in caplog.text


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, clock: VirtualClock) -> None:
    await in_thread((tmp_path / "file").touch)
    spool = Spool(tmp_path / "file" / "spool", clock)

    with pytest.raises(StoreError, match=r"file/spool.*cannot be used: not a directory\. Give it a folder"):
        await spool.open()


async def test_a_folder_that_can_no_longer_be_used_refuses_what_comes(machine: Machine, spool: Spool) -> None:
    await in_thread(machine.folder.touch)

    with pytest.raises(StoreError, match="cannot be used"):
        await spool.add([message()])

    assert len(spool) == 0
    await in_thread(machine.folder.unlink)
    await spool.add([message()])
    assert len(spool) == 1


async def test_a_damaged_file_is_moved_aside_and_the_others_go_on(
    machine: Machine, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    def damage() -> None:
        machine.folder.mkdir()
        (machine.folder / "spool-5.db").write_bytes(b"no database" * 1000)

    await in_thread(damage)
    redis = Redis()
    await spool.add([own := message()])

    await spool.drain(redis.put)

    assert redis.taken == [own]
    assert await machine.names() == ["spool-5.db.damaged"]
    assert "spool-5.db is damaged, and is moved to spool-5.db.damaged" in caplog.text
    assert len(await machine.process()) == 0


async def test_what_is_before_the_damage_may_be_put_and_nothing_is_thrown_away(
    machine: Machine, spool: Spool
) -> None:
    messages, late, redis = some(2000), message(), Redis()
    await spool.add(messages)
    [path] = [file.path for file in files(spool)]
    await spool.close()

    def damage() -> None:
        content = bytearray(path.read_bytes())
        for page in range(len(content) // 2 // 4096, len(content) // 4096):
            content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        path.write_bytes(content)

    await in_thread(damage)
    spool = await machine.process()
    await spool.add([late])
    await spool.drain(redis.put)

    assert redis.taken == [*messages[: len(redis.taken) - 1], late]
    assert await machine.endings() == ["db.damaged"]


@pytest.mark.parametrize("step", ["first", "remove", "find", "cancel", "known"])
async def test_damage_that_is_found_at_any_step_is_the_end_of_that_file_alone(
    machine: Machine, spool: Spool, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    other, redis = await machine.process(), Redis(1)
    await spool.add(lost := some(3))
    await other.add(kept := some(3))
    await machine.kill(spool)
    with pytest.raises(ConnectionError):
        await other.drain(redis.put)  # by now it has both files
    monkeypatch.setattr(files(other)[-1], step, damaged)

    assert await other.find(kept[0].id) == kept[0]
    assert await other.cancel([kept[0].id]) == {kept[0].id}
    await other.add([late := message()])
    await other.drain(redis.put)

    assert redis.taken[-3:] == [*kept[1:], late]
    assert redis.taken[:-3] == (lost if step == "remove" else [])
    assert await machine.endings() == ["db.damaged"]


def damaged(*_: object) -> None:
    raise spool_file.DamagedSpoolError


async def test_a_file_that_is_damaged_while_it_is_open_lets_new_messages_in(
    machine: Machine, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spool.add([message()])
    monkeypatch.setattr(files(spool)[0], "add", damaged)
    late, redis = message(), Redis()

    await spool.add([late])

    assert "db.damaged" in await machine.endings()
    assert await spool.drain(redis.put) == 1
    assert redis.taken == [late]


async def test_a_message_that_cannot_be_read_is_kept_and_lets_the_others_pass(
    machine: Machine, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    first, strange, last = messages = some(3)
    redis = Redis()
    await spool.add(messages)
    await in_thread(spoil, connection(spool), strange.id)

    assert await spool.find(strange.id) is None
    assert await spool.drain(redis.put) == 2

    assert redis.taken == [first, last]
    assert len(spool) == 0
    [name] = await machine.names()
    assert name.endswith(".db.damaged")
    assert f"message {strange.id} in the spool file" in caplog.text
    assert spool.set_aside == 1
    assert await in_thread(ids_in, machine.folder / name) == [strange.id]


def spoil(connection: sqlite3.Connection, ticket: TicketId) -> None:
    with connection:
        connection.execute("UPDATE messages SET body = x'ff' WHERE id = ?", (ticket,))


def ids_in(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [ticket for [ticket] in connection.execute("SELECT id FROM messages")]
    finally:
        connection.close()


async def test_a_file_that_cannot_be_read_for_now_lets_the_others_pass_and_is_tried_again(
    machine: Machine, spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    other, redis = await machine.process(), Redis()
    await spool.add([theirs := message()])
    await other.add([own := message()])
    await machine.kill(spool)
    redis.failing = {1}
    with pytest.raises(ConnectionError):
        await other.drain(redis.put)
    assert "has 1 messages of a process that ended" in caplog.text

    with monkeypatch.context() as patch:

        def fail() -> None:
            raise StoreError("look at the disk")

        patch.setattr(min(files(other), key=lambda file: file.number), "first", fail)
        with pytest.raises(StoreError, match="look at the disk"):
            await other.drain(redis.put)
    assert redis.taken == [own]

    await other.drain(redis.put)
    assert redis.taken == [own, theirs]
