"""Sessions of flows on every kind of store: one write holds session, timer, effects and seen event."""

import asyncio
import random
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.flows.effects import PendingEffect, SayText
from tidegate.flows.port import FlowSessionStore, SessionConflictError, SessionKey, SessionPage
from tidegate.flows.session import Session
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions
from tidegate.stores.redis.flow_sessions import RedisFlowSessions
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions

ALICE, BOB = SessionKey(42, 1, 1), SessionKey(42, -100, 2, 7)
SAY: Final = (PendingEffect("u1", 0, SayText("Hi")),)


class Ground:
    """A file, a Redis or nothing, in which sessions are kept."""

    def __init__(self, make: Callable[[str], FlowSessionStore], owner: Any = None) -> None:  # noqa: ANN401
        self.of = make
        self.owner = owner


def memory(_: Clock) -> Ground:
    stores: dict[str, MemoryFlowSessions] = {}
    return Ground(lambda flow: stores.setdefault(flow, MemoryFlowSessions(flow)))


def sqlite(clock: Clock) -> Ground:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)
    return Ground(lambda flow: SqliteFlowSessions(file, clock, flow), file)


def redis(clock: Clock) -> Ground:
    link = InlineConnection(redis_url(), clock)
    return Ground(lambda flow: RedisFlowSessions(link, clock, flow), link)


KINDS: Final[dict[str, Callable[[Clock], Ground]]] = {"memory": memory, "sqlite": sqlite, "redis": redis}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, clock: VirtualClock) -> Ground:
    return KINDS[request.param](clock)


@pytest.fixture
async def ground(made: Ground) -> AsyncIterator[Ground]:
    if isinstance(made.owner, StoreFile):
        await made.owner.open()
    yield made
    if made.owner is not None:
        await made.owner.close()


@pytest.fixture
async def store(ground: Ground) -> FlowSessionStore:
    return ground.of("shop")


def session(state: str = "start", **fields: Any) -> Session:  # noqa: ANN401  (those of a session)
    return Session(flow="shop", state=state, visit=1, **fields)


async def every(scan: Callable[[str], Any]) -> set[SessionKey]:
    page: SessionPage = await scan("")
    found = set(page.keys)
    while page.cursor:
        page = await scan(page.cursor)
        found |= set(page.keys)
    return found


async def test_a_session_comes_back_as_it_was_committed(store: FlowSessionStore) -> None:
    assert (await store.load(ALICE)).session is None
    written = session(data={"name": "Ä", "n": [1, 2.5, None]}, due=9.25, pending=SAY, recent=("u1",))

    assert await store.commit(ALICE, written, expected=0) == 1

    stored = await store.load(ALICE)
    assert (stored.session, stored.version, stored.is_seen) == (written, 1, False)
    assert (await store.load(BOB)).session is None


async def test_each_commit_replaces_the_one_before(store: FlowSessionStore) -> None:
    version = await store.commit(ALICE, session(), expected=0)
    version = await store.commit(ALICE, session("end"), expected=version)

    stored = await store.load(ALICE)
    assert (stored.session, stored.version) == (session("end"), version)


async def test_a_commit_upon_an_outdated_version_changes_nothing(store: FlowSessionStore) -> None:
    await store.commit(ALICE, session(due=5.0), expected=0)
    await store.commit(ALICE, session("second", pending=SAY), expected=1)

    for outdated in (0, 1, 3):
        with pytest.raises(SessionConflictError):
            await store.commit(ALICE, session("lost", due=1.0), expected=outdated, seen="e", at=1.0)
        with pytest.raises(SessionConflictError):
            await store.commit(ALICE, None, expected=outdated, seen="e", at=1.0)

    stored = await store.load(ALICE, "e")
    assert (stored.session, stored.version, stored.is_seen) == (session("second", pending=SAY), 2, False)
    assert await store.timers(0.0) == (0, None)
    assert await every(store.unfinished) == {ALICE}


async def test_a_session_that_is_removed_leaves_no_timer_and_no_effects(store: FlowSessionStore) -> None:
    await store.commit(ALICE, session(due=5.0, pending=SAY), expected=0)

    assert await store.commit(ALICE, None, expected=1) == 0

    assert (await store.load(ALICE)).version == 0
    assert await store.timers(0.0) == (0, None)
    assert await every(store.unfinished) == await every(store.scan) == set()
    assert await store.commit(ALICE, session(), expected=0) == 1


async def test_timers_are_due_in_the_order_of_their_times(store: FlowSessionStore) -> None:
    for user, at in ((1, 30.5), (2, 10.25), (3, 20.0), (4, None)):
        await store.commit(SessionKey(42, user, user), session(expires_at=at), expected=0)

    assert await store.timers(0.0) == (3, 10.25)
    assert await store.timers(10.25) == (3, 20.0)
    assert await store.due(10.0, 10) == []
    assert [key.user for key, _ in await store.due(30.5, 10)] == [2, 3, 1]
    assert await store.due(30.5, 1) == [(SessionKey(42, 2, 2), session(expires_at=10.25))]

    await store.commit(SessionKey(42, 2, 2), session(expires_at=40.0), expected=1)
    await store.commit(SessionKey(42, 3, 3), session(), expected=1)
    assert [key.user for key, _ in await store.due(30.5, 10)] == [1]
    assert await store.timers(30.5) == (2, 40.0)


async def test_sessions_with_pending_effects_are_unfinished_until_they_are_cleared(
    store: FlowSessionStore,
) -> None:
    await store.commit(ALICE, session(pending=SAY), expected=0)
    await store.commit(BOB, session(), expected=0)
    assert await every(store.unfinished) == {ALICE}

    await store.commit(ALICE, session(), expected=1)
    assert await every(store.unfinished) == set()


async def test_a_scan_finds_every_session(store: FlowSessionStore) -> None:
    keys = {SessionKey(42, user, user, 5 if user % 2 else None) for user in range(1, 1_203)}
    for key in keys:
        await store.commit(key, session(pending=SAY), expected=0)

    assert await every(store.scan) == await every(store.unfinished) == keys


async def test_an_event_is_seen_once_it_was_committed_also_after_the_session(store: FlowSessionStore) -> None:
    assert not (await store.load(ALICE, "e1")).is_seen
    await store.commit(ALICE, session(), expected=0, seen="e1", at=5.0)
    await store.commit(ALICE, None, expected=1)

    assert (await store.load(ALICE, "e1")).is_seen
    assert not (await store.load(ALICE, "e2")).is_seen
    assert not (await store.load(BOB, "e1")).is_seen


async def test_seen_events_are_forgotten_by_age(store: FlowSessionStore) -> None:
    for number in range(3):
        await store.commit(ALICE, None, expected=0, seen=f"e{number}", at=10.0 * number)

    assert await store.forget_seen(10.0) == 1

    assert [(await store.load(ALICE, f"e{number}")).is_seen for number in range(3)] == [False, True, True]


async def test_flows_do_not_see_each_other(ground: Ground) -> None:
    shop, support = ground.of("shop"), ground.of("support")
    await shop.commit(ALICE, session(due=1.0, pending=SAY), expected=0, seen="e", at=1.0)
    await shop.save_fingerprint("a")

    stored = await support.load(ALICE, "e")
    assert (stored.session, stored.is_seen, await support.fingerprint()) == (None, False, None)
    assert await support.timers(0.0) == (0, None)
    assert await support.due(9.0, 9) == []
    assert await every(support.scan) == await every(support.unfinished) == set()
    assert await support.forget_seen(9.0) == 0


async def test_the_fingerprint_is_the_one_saved_last(store: FlowSessionStore) -> None:
    assert await store.fingerprint() is None
    for fingerprint in ("a", "b"):
        await store.save_fingerprint(fingerprint)
        assert await store.fingerprint() == fingerprint


async def test_a_lock_has_one_holder_at_a_time_in_the_order_of_arrival(
    store: FlowSessionStore, clock: VirtualClock
) -> None:
    holding = most = 0
    order: list[int] = []

    async def hold(number: int) -> None:
        nonlocal holding, most
        async with store.hold("42:1:1"):
            holding += 1
            most = max(most, holding)
            order.append(number)
            await clock.sleep(1)
            holding -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(hold(number))
    assert (most, order) == (1, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("made", ["redis"], indirect=True)
async def test_processes_exclude_each_other_for_as_long_as_a_session_is_held(
    ground: Ground, clock: VirtualClock
) -> None:
    one, other = ground.of("shop"), ground.of("shop")
    begun = asyncio.Event()
    ended: list[str] = []

    async def first() -> None:
        async with one.hold("42:1:1"):
            begun.set()
            await clock.sleep(100)
            ended.append("first")

    async def second() -> None:
        await begun.wait()
        async with other.hold("42:1:1"):
            ended.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        group.create_task(second())
    assert ended == ["first", "second"]


async def damage(ground: Ground, key: SessionKey, body: bytes = b"{}") -> None:
    """Make a session unreadable where it is stored."""
    if isinstance(ground.owner, StoreFile):
        spoil = "UPDATE flow_sessions SET body = ? WHERE key = ?"
        await ground.owner.write(lambda tx: tx.execute(spoil, (body, key.text)))
    elif ground.owner is not None:
        await ground.owner.command("HSET", ground.owner.key("flows:shop:sessions"), key.text, b"1:" + body)
    else:
        store = ground.of("shop")
        assert isinstance(store, MemoryFlowSessions)
        store._rows[key] = 1, body  # noqa: SLF001  (nothing else changes it)


async def kept_aside(ground: Ground, key: SessionKey) -> bytes:
    if isinstance(ground.owner, StoreFile):
        find = "SELECT body FROM flow_sessions WHERE flow = 'unreadable:shop' AND key = ?"
        row: Any = await ground.owner.read(lambda tx: tx.execute(find, (key.text,)).fetchone())
        return bytes(row[0])
    if ground.owner is not None:
        found: bytes = await ground.owner.command("HGET", ground.owner.key("flows:shop:unreadable"), key.text)
        return found.removeprefix(b"1:")
    store = ground.of("shop")
    assert isinstance(store, MemoryFlowSessions)
    return store._unreadable[key]  # noqa: SLF001


async def test_a_session_that_cannot_be_read_is_set_aside_once_and_its_user_starts_anew(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    store = ground.of("shop")
    await store.commit(ALICE, session(due=1.0, pending=SAY), expected=0)
    await store.commit(BOB, session(), expected=0)
    await damage(ground, ALICE, b'{"flow": 5')

    stored = await store.load(ALICE)
    again = await store.load(ALICE)

    assert (stored.session, stored.version, again) == (None, 0, stored)
    assert [record.getMessage().count("42:1:1") for record in caplog.records] == [1]
    assert store.unreadable() == 1
    assert await kept_aside(ground, ALICE) == b'{"flow": 5'
    assert await store.due(9.0, 9) == []
    assert await every(store.unfinished) == set()
    assert await store.commit(ALICE, session("again"), expected=0) == 1
    assert await kept_aside(ground, ALICE) == b'{"flow": 5'  # beside the new one
    assert (await store.load(BOB)).session == session()


async def test_sessions_that_cannot_be_read_do_not_hide_the_timers_of_others(
    ground: Ground, store: FlowSessionStore
) -> None:
    keys = [SessionKey(42, user, user) for user in range(1, 5)]
    for at, key in enumerate(keys):
        await store.commit(key, session(due=float(at), pending=SAY), expected=0)
    for key in keys[:3]:
        await damage(ground, key)

    assert [key for key, _ in await store.due(10.0, 2)] == [keys[3]]
    assert await store.timers(0.0) == (1, 3.0)
    assert await every(store.unfinished) == {keys[3]}
    assert await every(store.scan) == {keys[3]}
    assert [await kept_aside(ground, key) for key in keys[:3]] == [b"{}"] * 3
    assert store.unreadable() == 3


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_bytes_of_sessions_are_flipped_the_timers_of_others_ring(
    ground: Ground, store: FlowSessionStore, seed: int
) -> None:
    chance = random.Random(seed)
    keys = [SessionKey(42, user, user) for user in range(1, 21)]
    for key in keys:
        await store.commit(key, session(due=1.0, data={"n": key.user}), expected=0)
    damaged = chance.sample(keys, 8)
    for key in damaged:
        body = bytearray(session(due=1.0, data={"n": key.user}).to_json())
        body[chance.randrange(len(body))] ^= chance.randint(1, 255)
        await damage(ground, key, bytes(body))

    rung = {key for key, _ in await store.due(10.0, 50)}

    assert set(keys) - set(damaged) <= rung
    assert len(rung) + store.unreadable() == len(keys)


@pytest.mark.parametrize("made", ["sqlite", "redis"], indirect=True)
async def test_a_session_whose_key_is_damaged_stops_no_timer(ground: Ground, store: FlowSessionStore) -> None:
    await store.commit(ALICE, session(due=1.0), expected=0)
    await store.commit(BOB, session(due=2.0), expected=0)
    if isinstance(ground.owner, StoreFile):
        await ground.owner.write(
            lambda tx: tx.execute("UPDATE flow_sessions SET key = 'no key' WHERE key = ?", (ALICE.text,))
        )
    else:
        link = ground.owner
        await link.command("HSET", link.key("flows:shop:sessions"), "no key", b"1:{}")
        await link.command("ZADD", link.key("flows:shop:timers"), 0, "no key")

    assert BOB in {key for key, _ in await store.due(10.0, 1)} | {key for key, _ in await store.due(10.0, 2)}
    assert BOB in await every(store.scan)


async def test_sessions_are_counted_by_bot_and_state_but_not_those_that_have_ended(
    ground: Ground, store: FlowSessionStore
) -> None:
    assert await store.count_states() == {}
    other_bot = SessionKey(43, 1, 1)
    await store.commit(ALICE, session("waiting"), expected=0)
    await store.commit(BOB, session("waiting", data={"state": "none of its own"}), expected=0)
    await store.commit(other_bot, session("start"), expected=0)
    await store.commit(SessionKey(42, 3, 3), session("paid", ended=True, pending=SAY), expected=0)
    await ground.of("other").commit(ALICE, session("elsewhere"), expected=0)

    assert await store.count_states() == {(42, "waiting"): 2, (43, "start"): 1}

    await store.commit(ALICE, session("start"), expected=1)
    await store.commit(BOB, None, expected=1)
    assert await store.count_states() == {(42, "start"): 1, (43, "start"): 1}


async def test_more_sessions_are_counted_than_one_step_looks_at(
    store: FlowSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.flow_sessions.COUNTED_PER_STEP", 3)
    monkeypatch.setattr("tidegate.stores.redis.flow_sessions.PAGE_SIZE", 3)
    for user in range(1, 10):
        await store.commit(SessionKey(42, user, user), session("a" if user < 7 else "b"), expected=0)

    assert await store.count_states() == {(42, "a"): 6, (42, "b"): 3}
