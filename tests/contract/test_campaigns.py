"""The broadcasts that a store knows, on every kind of store."""

import tempfile
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.model import BotId
from tidegate.outbox.campaigns import CampaignRecord, CampaignStore, MemoryCampaigns, SqlSource
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.campaigns import RedisCampaigns
from tidegate.stores.sqlite.campaigns import SqliteCampaigns
from tidegate.stores.sqlite.file import StoreFile

BOT, OTHER_BOT = BotId(42), BotId(43)
SOURCE = SqlSource(database="", query="SELECT 1", parameters={"a": 1}, letter="Hi {name}")


def record(name: str = "news", **fields: Any) -> CampaignRecord:  # noqa: ANN401  (a record's own)
    given: dict[str, Any] = {"bot": BOT, "state": "running", "audience": "a list"}
    given |= {"started_at": 1.0, "changed_at": 2.0}
    return CampaignRecord(name=name, **given | fields)


def memory(_: Clock) -> tuple[CampaignStore, Any]:
    return MemoryCampaigns(), None


def sqlite(_: Clock) -> tuple[CampaignStore, Any]:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)
    return SqliteCampaigns(file), file


def redis(clock: Clock) -> tuple[CampaignStore, Any]:
    link = InlineConnection(redis_url(), clock)
    return RedisCampaigns(link), link


KINDS: Final[dict[str, Callable[[Clock], tuple[CampaignStore, Any]]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, clock: VirtualClock) -> tuple[CampaignStore, Any]:
    return KINDS[request.param](clock)


@pytest.fixture
async def store(made: tuple[CampaignStore, Any]) -> AsyncIterator[CampaignStore]:
    store, owner = made
    if isinstance(owner, StoreFile):
        await owner.open()
    yield store
    if owner is not None:
        await owner.close()


async def test_a_broadcast_is_found_as_it_was_reported_last(store: CampaignStore) -> None:
    assert await store.find(BOT, "news") is None
    assert await store.all() == []

    await store.save(record())
    last = record(counts={"read": 5}, total=9, fields={"priority": "low"}, source=SOURCE, trouble="x")
    await store.save(last)

    assert await store.find(BOT, "news") == (last, "run")
    assert await store.find(OTHER_BOT, "news") is None
    assert await store.all() == [last]


async def test_what_is_asked_is_heard_with_the_next_report_and_stays(store: CampaignStore) -> None:
    assert await store.ask(BOT, "news", "pause") is False
    assert await store.save(record()) == "run"

    assert await store.ask(BOT, "news", "pause") is True

    assert await store.save(record(changed_at=3.0)) == "pause"
    assert await store.save(record(changed_at=4.0)) == "pause"
    assert await store.save(record(changed_at=5.0), "run") == "run"
    assert await store.save(record(changed_at=6.0)) == "run"


async def test_broadcasts_are_listed_the_oldest_first_and_can_be_removed(store: CampaignStore) -> None:
    old, new = record("old", started_at=1.0), record("a", started_at=2.0)
    same_name = record("a", bot=OTHER_BOT, started_at=3.0)
    for one in (same_name, new, old):
        await store.save(one)
    await store.ask(BOT, "a", "pause")

    assert await store.all() == [old, new, same_name]
    await store.remove(BOT, "a")
    await store.remove(BOT, "unknown")

    assert await store.all() == [old, same_name]
    assert await store.save(new) == "run"  # what was asked before is forgotten too


def test_one_whose_process_gives_no_sign_of_life_is_stopped() -> None:
    running, finished = record(changed_at=100.0), record(state="finished", changed_at=100.0)

    assert running.at(105.0) == running
    assert running.at(120.0) == msgspec.structs.replace(running, state="stopped")
    assert finished.at(1e9) == finished
