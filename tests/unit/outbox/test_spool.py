"""What a producer accepts while Redis is away: in order, once, and whatever becomes of the process."""

import asyncio
import fcntl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from restarts import in_thread
from spools import Machine, Redis, connection, files, message, some
from tidegate.errors import ClosedError
from tidegate.model import File, TicketId
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


async def test_nothing_is_on_disk_as_long_as_nothing_is_added(machine: Machine, spool: Spool) -> None:
    await spool.add([])

    assert await spool.drain(Redis().put) == 0
    assert await spool.find(TicketId("m0")) is None
    assert await spool.cancel([TicketId("m0")]) == set()
    await spool.close()
    assert not await in_thread(machine.folder.exists)


async def test_messages_are_put_in_order_and_nothing_stays(machine: Machine, spool: Spool) -> None:
    messages, redis = some(7), Redis()
    for each in messages:
        await spool.add([each])

    assert (len(spool), await spool.drain(redis.put), len(spool)) == (7, 7, 0)
    assert redis.taken == messages
    assert await machine.names() == []


async def test_messages_are_put_250_at_a_time(spool: Spool) -> None:
    messages, redis = some(600), Redis()
    await spool.add(messages)

    await spool.drain(redis.put)

    assert redis.chunks == [250, 250, 100]
    assert redis.taken == messages


async def test_messages_with_large_files_are_put_a_few_at_a_time(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_file, "CHUNK_BYTES", 2500)
    large, redis = [message("x" * 1000) for _ in range(4)], Redis()
    await spool.add([*large, message("x" * 9000), message()])

    await spool.drain(redis.put)

    assert redis.chunks == [2, 2, 1, 1]


async def test_a_chunk_that_is_not_taken_is_put_again_and_what_was_taken_is_not(spool: Spool) -> None:
    messages, redis = some(600), Redis(2)
    await spool.add(messages)

    with pytest.raises(ConnectionError, match="away"):
        await spool.drain(redis.put)

    assert len(spool) == 350
    assert await spool.drain(redis.put) == 350
    assert redis.taken == messages


async def test_what_comes_while_it_drains_goes_in_the_same_call(spool: Spool) -> None:
    first, second, redis = message(), message(), Redis()
    await spool.add([first])

    async def add_once() -> None:
        redis.meanwhile = None
        await spool.add([second])

    redis.meanwhile = add_once
    assert await spool.drain(redis.put) == 2
    assert redis.taken == [first, second]


async def test_what_is_on_its_way_to_the_disk_is_counted_and_drained(spool: Spool) -> None:
    redis = Redis()
    added = asyncio.create_task(spool.add([message()]))
    await spool._clock.sleep(0)  # noqa: SLF001

    assert len(spool) == 1
    assert await spool.drain(redis.put) == 1
    await added
    assert len(spool) == 0


async def test_two_drains_at_once_put_nothing_twice(spool: Spool) -> None:
    messages, redis = some(3), Redis()
    redis.meanwhile = lambda: spool._clock.sleep(1)  # noqa: SLF001
    await spool.add(messages)

    assert sorted(await asyncio.gather(spool.drain(redis.put), spool.drain(redis.put))) == [0, 3]
    assert redis.taken == messages


async def test_a_drain_that_is_cancelled_loses_nothing(spool: Spool) -> None:
    messages, redis = some(3), Redis()
    await spool.add(messages)
    redis.meanwhile = lambda: spool._clock.sleep(60)  # noqa: SLF001
    with pytest.raises(TimeoutError):
        async with spool._clock.timeout(1):  # noqa: SLF001
            await spool.drain(redis.put)

    redis.meanwhile = None
    assert await spool.drain(redis.put) == 3
    assert redis.taken == messages


async def test_a_drain_that_is_cancelled_after_a_put_does_not_put_that_again(
    spool: Spool, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = Redis()
    await spool.add([first := message()])

    def in_slow_thread(function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def perform() -> None:
            if not done.cancelled():
                done.set_result(loop.run_in_executor(None, function, *arguments).result())

        clock.call_later(1, perform)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(spool, "_in_thread", in_slow_thread)
        with pytest.raises(TimeoutError):
            async with clock.timeout(2.5):  # it looks for files, it reads, it puts, and is about to remove
                await spool.drain(redis.put)
        await clock.sleep(1)

    await spool.add([late := message()])
    assert await spool.drain(redis.put) == 1
    assert redis.taken == [first, late]


async def test_a_message_whose_deadline_has_passed_is_put_nevertheless(spool: Spool) -> None:
    late, redis = message(expires_at=1.0), Redis()
    await spool.add([late])

    await spool.drain(redis.put)

    assert redis.taken == [late]


async def test_a_message_comes_out_as_it_went_in(spool: Spool) -> None:
    album = [{"type": "photo", "media": File(content=b"\x00\xff", name="a.png")}]
    given, redis = message(params={"media": album}, dedup_key="d", not_before=5.0), Redis()
    await spool.add([given])

    assert await spool.find(given.id) == given
    await spool.drain(redis.put)
    assert redis.taken == [given]
    assert await spool.find(given.id) is None


async def test_an_id_is_kept_once(spool: Spool) -> None:
    first, redis = message("first"), Redis()
    again = message("again", id=first.id)

    await spool.add([first, again])
    await asyncio.gather(spool.add([again]), spool.add([message(), first]))

    assert len(spool) == 2
    await spool.drain(redis.put)
    assert redis.taken[0] == first
    assert len(redis.taken) == 2


async def test_adds_at_the_same_time_share_a_commit(spool: Spool) -> None:
    await spool.add([message()])
    statements: list[str] = []
    connection(spool).set_trace_callback(statements.append)

    await asyncio.gather(*(spool.add([message()]) for _ in range(50)))

    assert statements.count("COMMIT") == 1
    assert len(spool) == 51


async def test_an_add_that_nobody_waits_for_any_more_harms_no_other(spool: Spool) -> None:
    left = asyncio.create_task(spool.add([message()]))
    stayed = asyncio.create_task(spool.add([message()]))
    await spool._clock.sleep(0)  # noqa: SLF001
    left.cancel()

    await stayed

    assert len(spool) == 2


async def test_a_spool_that_is_not_open_says_so(spool: Spool) -> None:
    await spool.close()
    await spool.close()

    for step in (spool.add([message()]), spool.drain(Redis().put)):
        with pytest.raises(ClosedError, match="is not open"):
            await step


async def test_what_is_cancelled_is_not_put(spool: Spool) -> None:
    first, second, third = messages = some(3)
    redis = Redis()
    await spool.add(messages)

    assert await spool.cancel([second.id, TicketId("unknown")]) == {second.id}
    assert await spool.cancel([second.id]) == set()
    assert len(spool) == 2
    await spool.drain(redis.put)
    assert redis.taken == [first, third]


async def test_what_is_being_put_cannot_be_cancelled(spool: Spool) -> None:
    messages, redis = some(251), Redis(1)
    first, last = messages[0].id, messages[-1].id
    cancelled: list[set[TicketId]] = []

    async def cancel() -> None:
        cancelled.append(await spool.cancel([first, last]))

    redis.meanwhile = cancel
    await spool.add(messages)
    with pytest.raises(ConnectionError):
        await spool.drain(redis.put)

    assert cancelled == [{last}]
    assert await spool.cancel([first]) == {first}  # it is no longer being put
    redis.meanwhile = None
    await spool.drain(redis.put)
    assert redis.taken == messages[1:-1]


async def test_what_a_process_leaves_is_put_by_the_next(machine: Machine, spool: Spool) -> None:
    messages, redis = some(3), Redis()
    await spool.add(messages)
    await spool.close()

    spool = await machine.process()

    assert len(spool) == 3
    assert await spool.find(messages[1].id) == messages[1]
    await spool.drain(redis.put)
    assert redis.taken == messages


@pytest.mark.usefixtures("spool")
async def test_a_file_is_gone_after_what_was_in_it_was_cancelled(machine: Machine) -> None:
    [spool] = machine.opened
    await spool.add([only := message()])
    await spool.cancel([only.id])

    await spool.close()

    assert await machine.names() == []


async def test_a_process_that_lives_keeps_its_file(machine: Machine, spool: Spool) -> None:
    await spool.add([message()])

    other = await machine.process()

    assert len(other) == 0
    assert await other.drain(Redis().put) == 0
    assert len(spool) == 1


async def test_a_process_that_is_killed_is_inherited_by_one_that_lives(
    machine: Machine, spool: Spool
) -> None:
    other, redis = await machine.process(), Redis()
    await spool.add([theirs := message()])
    await other.add([own := message()])
    await machine.kill(spool)

    await other.drain(redis.put)

    assert redis.taken == [theirs, own]
    assert await machine.names() == []


async def test_two_processes_do_not_inherit_the_same_file(machine: Machine, spool: Spool) -> None:
    await spool.add(some(3))
    others, redis = [await machine.process(), await machine.process()], Redis()
    await machine.kill(spool)

    assert sorted(await asyncio.gather(*(other.drain(redis.put) for other in others))) == [0, 3]


async def test_the_oldest_file_is_drained_first(machine: Machine, clock: VirtualClock) -> None:
    messages, redis = some(3), Redis()
    processes = [await machine.process() for _ in messages]
    for process, each in zip(processes, messages, strict=True):
        await process.add([each])
        clock.epoch -= 3600  # the computer's clock is put back
    for process in processes:
        await machine.kill(process)

    await (await machine.process()).drain(redis.put)

    assert redis.taken == messages


async def test_a_process_that_dies_again_and_again_leaves_one_file(machine: Machine) -> None:
    messages, redis = some(5), Redis()
    for each in messages:
        spool = await machine.process()
        await spool.add([each])
        await machine.kill(spool)

    spool = await machine.process()

    assert len(files(spool)) == 1
    await spool.drain(redis.put)
    assert redis.taken == messages


async def test_what_one_process_adds_stays_in_one_file_whatever_it_inherits(
    machine: Machine, spool: Spool
) -> None:
    other = await machine.process()
    await spool.add([first := message()])
    await other.add([message()])
    await machine.kill(other)
    with pytest.raises(ConnectionError):
        await spool.drain(Redis(1).put)  # by now it has both files

    await spool.add([second := message()])

    # Others may inherit the two files, one each: only within a file do they keep the order.
    [own] = [file for file in files(spool) if await in_thread(file.find, first.id)]
    assert await in_thread(own.find, second.id) == second


async def test_a_file_that_is_drained_by_another_process_in_that_instant_is_not_inherited(
    machine: Machine, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await machine.process()
    await spool.add(some(3))
    [lock] = [file.path.with_suffix(".lock") for file in files(spool)]
    await machine.kill(spool)
    flock = fcntl.flock

    def be_late(file: int, how: int) -> None:
        lock.unlink(missing_ok=True)  # by the other one, after this one has opened it
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", be_late)
        assert await other.drain(Redis().put) == 0

    assert await other.drain(Redis().put) == 3


async def test_an_id_that_an_inherited_file_has_is_kept_once(machine: Machine, spool: Spool) -> None:
    other, redis = await machine.process(), Redis()
    await spool.add([theirs := message()])
    await other.add([own := message()])
    await machine.kill(spool)
    redis.failing = {1}
    with pytest.raises(ConnectionError):
        await other.drain(redis.put)  # by now it has both files

    await other.add([theirs, own])

    assert len(other) == 2


async def test_what_a_process_left_behind_without_messages_is_cleared(machine: Machine) -> None:
    def leave() -> None:
        machine.folder.mkdir()
        (machine.folder / "spool-5.lock").touch()  # killed before it made the file
        (machine.folder / "spool-6.db").touch()  # killed before it wrote to it
        (machine.folder / "notes.txt").touch()

    await in_thread(leave)
    spool = await machine.process()
    await spool.close()

    assert await machine.names() == ["notes.txt"]


async def test_files_are_for_their_owner_alone(machine: Machine, spool: Spool) -> None:
    await spool.add([message()])

    def modes() -> dict[str, int]:
        paths = [machine.folder, *machine.folder.iterdir()]
        return {path.name.rpartition(".")[2]: path.stat().st_mode & 0o777 for path in paths}

    expected = {"spool": 0o700, "db": 0o600, "db-wal": 0o600, "db-shm": 0o600, "lock": 0o600}
    assert await in_thread(modes) == expected
