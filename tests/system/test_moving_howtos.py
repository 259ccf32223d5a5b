"""The samples of how-tos on schedules, restarts, two instances and moving here, run unchanged."""

import asyncio
import datetime as dt
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
from aiogram import Bot, Dispatcher
from redis.asyncio import Redis

from system.bots.scenes import GENEROUS
from system.shops import FAST, TOKEN, Street
from system.snippets import blocks, programs, read, run
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.model import State
from tidegate.sim.telegram.http import TelegramServer

SCHEDULE, RESTARTS, INSTANCES, LIMITER, QUEUE, ARQ, CELERY = (
    "schedule-a-message.md",
    "survive-restarts.md",
    "two-instances-behind-a-load-balancer.md",
    "from-aioratelimiter.md",
    "from-a-redis-queue.md",
    "from-arq.md",
    "from-celery-eta.md",
)
FERRIES: Final = ["06:10 Rye", "07:40 Hythe", "09:00 Dover"]
LOADED: Final = ZoneInfo("Europe/Berlin")  # or a sample would read its file while the loop runs
clock: Final = Clock()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
async def gate(workplace: Path) -> AsyncIterator[Tidegate]:
    gate = Tidegate(str(workplace / "shop.db"))
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


async def sample(page: str, word: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401  (anything)
    """Run the first block of a page that has this word; return the names that it makes."""
    block = next(block for block in await asyncio.to_thread(blocks, page) if word in block)
    block = block.replace("2026, 12, 4", tomorrow())
    made: dict[str, Any] = {"__name__": "bot", **names}
    running = eval(read(block, page), made)  # noqa: S307  (our own docs)
    if running is not None:
        await running
    return made


def tomorrow() -> str:
    day = dt.datetime.fromtimestamp(clock.now() + 86_400, dt.UTC)
    return f"{day.year}, {day.month}, {day.day}"


async def waiting(gate: Tidegate) -> dict[str, float | None]:
    """Return when each waiting message is due, by its text."""
    records = await gate.outbox.records(states=frozenset({State.QUEUED, State.RETRY}))
    return {record.message.params["text"]: record.message.not_before for record in records}


async def test_messages_are_scheduled_and_taken_back(gate: Tidegate) -> None:
    async with Bot(TOKEN) as bot:
        gate.attach(None, bot)
        made = await sample(SCHEDULE, "not_before=friday", gate=gate, bot=bot)
        due = made["friday"].timestamp()
        async with clock.timeout(20):
            while len(found := await waiting(gate)) < 4:
                await clock.sleep(0.02)
        assert found == {
            "Your tea is ready": pytest.approx(clock.now() + 600, abs=60),
            "Good morning!": due,
            "Last call": due,
            "The sale begins": due,
        }
        await sample(SCHEDULE, "gate.cancel(key=", gate=gate)
        assert "Good morning!" not in await waiting(gate)


async def test_the_bot_that_survives_restarts_sells(workplace: Path) -> None:
    [program] = await asyncio.to_thread(programs, RESTARTS)
    async with TelegramServer(limits=GENEROUS) as server:
        ann = Street(server, workplace, "aiogram").person(1001)
        async with run(program, TOKEN, server):
            ann.says("/buy")
            assert (await ann.hears(20))["text"] == "Your ticket: T-17"


@pytest.mark.usefixtures("workplace")
async def test_the_bot_of_two_instances_is_one_that_can_be_imported() -> None:
    made = await sample(INSTANCES, "gate.serve", TOKEN=TOKEN)
    assert isinstance(made["dp"], Dispatcher)
    await made["bot"].session.close()


@pytest.mark.parametrize("attached", [False, True], ids=["before", "after"])
async def test_a_bot_says_the_same_before_and_after_its_limiter_is_replaced(
    attached: bool,  # noqa: FBT001
    workplace: Path,
) -> None:
    program = (await asyncio.to_thread(programs, LIMITER))[attached]
    async with TelegramServer(limits=GENEROUS) as server:
        ann = Street(server, workplace, "ptb").person(1001)
        async with run(program, TOKEN, server):
            ann.says("/ferries")
            assert [(await ann.hears(20))["text"] for _ in FERRIES] == FERRIES


async def test_a_bridge_carries_the_old_list_into_the_queue(gate: Tidegate, redis_url: str) -> None:
    before = await sample(QUEUE, "blpop")
    bridge = (await sample(QUEUE, "def bridge"))["bridge"]
    async with Redis.from_url(redis_url) as redis:
        await redis.delete("outgoing", "bridging")
        for text in ("first", "second"):
            await before["enqueue"](redis, 1001, text)
        carrying = asyncio.create_task(bridge(redis, gate))
        async with clock.timeout(20):
            while set(await waiting(gate)) != {"first", "second"} or await redis.llen("bridging"):
                await clock.sleep(0.02)
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


@pytest.mark.parametrize("page", [ARQ, CELERY])
async def test_what_was_deferred_is_a_message_with_a_time_and_a_key(page: str, gate: Tidegate) -> None:
    block = {ARQ: "gate.send(\n        chat_id=chat_id, text", CELERY: "await gate.send("}[page]
    text = next(one for one in await asyncio.to_thread(blocks, page) if block in one)
    text = text.replace('gate = Tidegate("redis://localhost:6379/0")\n', "")
    made: dict[str, Any] = {"gate": gate, "datetime": dt.datetime, "__name__": "bot"}
    exec(read(text, page), made)  # noqa: S102  (our own docs)
    due = dt.datetime.fromtimestamp(clock.now() + 3_600, dt.UTC)
    for _ in range(2):
        await (made.get("remind") or made["plan"])(1001, due)
    assert await waiting(gate) == {"Your ferry leaves soon.": due.timestamp()}


# As a worker of Celery 5.7 answers `inspect().scheduled()`, shortened.
SCHEDULED: Final = {
    "celery@one": [
        {
            "eta": "2026-11-19T07:39:36.521078+00:00",
            "priority": 6,
            "request": {"id": task, "name": "shop.remind", "args": [1001, task], "kwargs": {}},
        }
        for task in ("ferry-1001", "revoked-before")
    ]
}


async def test_scheduled_tasks_of_celery_become_messages_before_they_are_revoked() -> None:
    move = (await sample(CELERY, "def move("))["move"]
    calls: list[tuple[str, object]] = []
    inspected = SimpleNamespace(
        scheduled=lambda: SCHEDULED, revoked=lambda: {"celery@one": ["revoked-before"]}
    )
    control = SimpleNamespace(inspect=lambda **_: inspected, revoke=lambda ids: calls.append(("revoke", ids)))
    client = SimpleNamespace(send=lambda chat, _, **options: calls.append((chat, options)))
    assert move(SimpleNamespace(control=control), client) == ["ferry-1001"]
    assert calls == [
        (1001, {"not_before": 1795073976.521078, "dedup_key": "ferry-1001"}),
        ("revoke", ["ferry-1001"]),
    ]


async def test_workers_that_do_not_answer_are_not_taken_for_workers_without_tasks() -> None:
    move = (await sample(CELERY, "def move("))["move"]
    silent = SimpleNamespace(scheduled=lambda: None, revoked=lambda: None)
    app = SimpleNamespace(control=SimpleNamespace(inspect=lambda **_: silent))
    with pytest.raises(RuntimeError, match="no worker answers"):
        move(app, None)


async def test_messages_go_back_to_celery_under_ids_that_no_worker_has_revoked(gate: Tidegate) -> None:
    move_back = (await sample(CELERY, "def move_back("))["move_back"]
    due = dt.datetime.fromtimestamp(clock.now() + 3_600, dt.UTC)
    for name in ("waits", "leaves meanwhile"):
        await gate.send(chat_id=1001, text=name, not_before=due, dedup_key=name)
    await gate.send(chat_id=1001, text="now")
    listing = [str(Path(sys.executable).with_name("tidegate")), "queue", "list"]
    listing += ["--state", "queued", "--limit", "10000", "--json", "--store", gate.core.store_name]
    listed = await asyncio.to_thread(subprocess.check_output, listing)
    calls: list[tuple[object, ...]] = []

    def plan(**options: object) -> SimpleNamespace:
        calls.append(tuple(options.items()))
        return SimpleNamespace(revoke=lambda: calls.append(("revoked",)))

    answers = iter([True, False])
    move_back(SimpleNamespace(apply_async=plan), SimpleNamespace(cancel=lambda _: next(answers)), listed)
    assert calls == [
        (("args", [1001, "waits"]), ("eta", due)),
        (("args", [1001, "leaves meanwhile"]), ("eta", due)),
        ("revoked",),
    ]
