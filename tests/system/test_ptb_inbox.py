"""python-telegram-bot applications that lose no update: in processes that are killed, and by webhook."""

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster
from telegram.ext import Application

from simulated import TOKEN
from system.bots import polling_ptb, ptb_shop
from system.bots.ptb_shop import listen
from system.bots.ptb_shop import running as run_shop
from system.bots.scenes import GENEROUS, MANY, SCENES, SECRET, Visit
from system.bots.scenes import TOKEN as SHOP
from system.bots.scenes import Scene as Conversation
from system.killing import clock, in_thread, running
from system.mortal_redis import mortal_redis
from tidegate import Tidegate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

App = Application[Any, Any, Any, Any, Any, Any]
PEOPLE = range(1001, 1011)
LIVES = 4
TAKEN_OVER = 10.0  # seconds
RATES = dict.fromkeys(("TIDEGATE_BOT_RATE", "TIDEGATE_CHAT_RATE"), "10000/1")


@pytest.fixture(autouse=True)
def blocking_calls_of_the_library(no_blocking_calls: BlockBuster) -> None:
    """python-telegram-bot resolves its own path when an application is built, which is once."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


class Scene:
    """People who talk, and processes of one bot that listen."""

    def __init__(self, server: TelegramServer, store: str, folder: Path) -> None:
        bot = server.telegram.world.bot(TOKEN)
        assert bot is not None
        self.server, self.store, self.bot = server, store, bot
        self.people = [Person(server.telegram, bot, number) for number in PEOPLE]
        self.said = 0
        self.handled: defaultdict[int, list[int]] = defaultdict(list)
        self.latest: asyncio.subprocess.Process | None = None  # who has handled something
        self.news = asyncio.Event()
        self._variables = {
            **RATES,
            "TIDEGATE_SPOOL": str(folder / "spool"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    @asynccontextmanager
    async def process(self, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        script = polling_ptb.__file__
        async with running(
            self.store, self.server.url, *options, script=script, **self._variables
        ) as process:
            listening = asyncio.create_task(self._listen(process))
            yield process
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._note(line.decode(), process)

    def _note(self, line: str, process: asyncio.subprocess.Process) -> None:
        chat, number = line.split(" ")
        self.handled[int(chat)].append(int(number))
        self.latest = process
        self.news.set()

    def comes(self, number: int) -> None:
        """Somebody new, of whom no process that died holds anything."""
        Person(self.server.telegram, self.bot, number).says("0")

    def talk(self) -> None:
        for person in self.people:
            person.says(str(self.said))
        self.said += 1

    async def heard_by(self, process: asyncio.subprocess.Process | None = None) -> float:
        """When somebody handles the next one: this process, if it has to be."""
        while True:
            self.news.clear()
            await self.news.wait()
            if process is None or self.latest is process:
                return clock.monotonic()

    def missing(self) -> dict[int, list[int]]:
        """By chat: what was said, and nobody has handled."""
        gaps = {number: sorted(set(range(self.said)) - set(self.handled[number])) for number in PEOPLE}
        return {number: gap for number, gap in gaps.items() if gap}

    async def all_handled(self, patience: float) -> None:
        """`patience`: seconds in which something has to happen."""
        while missing := self.missing():
            self.news.clear()
            try:
                async with clock.timeout(patience):
                    await self.news.wait()
            except TimeoutError:
                raise AssertionError(f"nobody handles {missing}") from None

    async def all_answered(self, patience: float) -> None:
        wanted = [f"re {number}" for number in range(self.said)]
        async with clock.timeout(patience):
            while any(len({one["text"] for one in person.heard}) < self.said for person in self.people):
                await clock.sleep(0.1)
        for person in self.people:
            assert list(dict.fromkeys(one["text"] for one in person.heard)) == wanted

    async def answers_put(self) -> int:
        """In the outbox: each is there once, however often its update was handled."""
        gate = await in_thread(lambda: Tidegate(self.store))
        async with gate:
            return len(await gate.outbox.records(limit=1_000_000))

    def check(self) -> None:
        """All of it, in order; what came twice did so because a process died over it."""
        for number in PEOPLE:
            assert list(dict.fromkeys(self.handled[number])) == list(range(self.said))
        conflicts = [entry for entry in self.server.telegram.request_log.log if entry.status == 409]
        assert len(conflicts) < 3


@asynccontextmanager
async def scene(kind: str, folder: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TelegramServer(limits=GENEROUS))
        store = str(folder / "tidegate.db")
        if kind == "redis":
            store = (await stack.enter_async_context(mortal_redis(folder / "redis"))).url
        yield Scene(server, store, folder)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=pytest.mark.proof)])
async def test_a_second_process_takes_over_from_one_that_is_killed(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as stage, stage.process() as one, stage.process() as other:
        stage.talk()
        await stage.heard_by()
        leader = stage.latest
        assert leader is not None
        if kind == "redis":  # what it holds is held for 10 s: that takes too long here
            await stage.all_handled(5)
            await clock.sleep(0.5)  # until it has said so
        died_at = clock.monotonic()
        leader.kill()
        stage.talk()
        stage.comes(2001)
        taken_over_at = await stage.heard_by(other if leader is one else one)
        stage.talk()
        await stage.all_handled(15)
        stage.check()
    assert taken_over_at - died_at <= TAKEN_OVER


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_the_leader_is_killed_again_and_again(kind: str, tmp_path: Path) -> None:
    async with scene(kind, tmp_path) as stage, AsyncExitStack() as processes:
        for _ in range(2):
            await processes.enter_async_context(stage.process("reply"))
        talking = asyncio.create_task(talk_on(stage))
        await stage.heard_by()
        for life in range(LIVES):
            await clock.sleep(3)
            leader = stage.latest
            assert leader is not None
            died_at = taken_over_at = clock.monotonic()
            leader.kill()
            stage.comes(2001 + life)
            await processes.enter_async_context(stage.process("reply"))
            while stage.latest is leader:
                taken_over_at = await stage.heard_by()
            assert taken_over_at - died_at <= TAKEN_OVER
        talking.cancel()
        await stage.all_handled(20)
        stage.check()
        await stage.all_answered(60)
        assert await stage.answers_put() == stage.said * len(PEOPLE) + LIVES


async def talk_on(stage: Scene) -> None:
    while True:
        stage.talk()
        await clock.sleep(0.25)


@pytest.fixture(scope="module", params=["polling", "webhook"])
async def open_shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TelegramServer]:
    """The shop's own handlers, which know nothing of an inbox."""
    rules = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
    limiter = Tidegate(tmp_path_factory.mktemp("shop") / "tidegate.db", rules=rules).ptb()
    async with TelegramServer(limits=GENEROUS) as server:
        builder = Application.builder().token(SHOP).base_url(f"{server.url}/bot")
        app: App = limiter.equip(builder.base_file_url(f"{server.url}/file/bot"), throttle=False).build()
        for group, handlers in ptb_shop.application(server).handlers.items():
            app.add_handlers(handlers, group)
        async with run_shop(app) as updater:
            await (
                updater.start_polling(timeout=5) if request.param == "polling" else listen(updater, SECRET)
            )
            yield server
            await updater.stop()


@pytest.mark.parametrize("conversation", SCENES)
async def test_conversation(conversation: Conversation, open_shop: TelegramServer) -> None:
    await conversation(Visit(open_shop.telegram))
