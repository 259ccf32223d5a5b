"""Processes die while people write: nobody notices."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest
from redis.asyncio import Redis

from system import inbound_member
from system.inbound_member import TOKEN, Terms
from system.killing import in_thread, line_of, running
from system.mortal_redis import mortal_redis
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.inbound.inbox import InboxStats
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.model import Rate, Record
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.people import Person

MANY: Final = Rate(10_000, 1)
GENEROUS: Final = Limits(bot=MANY, private=MANY, group=MANY)
clock: Final = Clock()


class Scene:
    """A simulated Telegram with people in it, a store, and processes that come and go."""

    def __init__(self, server: TelegramServer, terms: Terms, stack: AsyncExitStack) -> None:
        self.server, self.terms = server, terms
        self._stack = stack
        self.said: dict[int, list[str]] = {}

    async def start(self, role: str) -> asyncio.subprocess.Process:
        given = msgspec.json.encode(self.terms).decode()
        member = running(role, given, script=inbound_member.__file__)
        return await self._stack.enter_async_context(member)

    async def leader(self) -> str:
        """The name of the process that polls."""
        async with Redis.from_url(self.terms.store, decode_responses=True) as redis:
            while not (found := await redis.get("tidegate:{0}:inbox:name:bot:42")):
                await clock.sleep(0.05)
        return str(found.split()[1])

    async def write(self, chats: int, seconds: float, each: float) -> None:
        """Everybody writes every `each` seconds, numbered."""
        bot = self.server.telegram.world.bot(TOKEN)
        assert bot is not None
        people = {chat: Person(self.server.telegram, bot, chat) for chat in range(1001, 1001 + chats)}
        until = clock.monotonic() + seconds
        for number in itertools.count():
            if clock.monotonic() > until:
                return
            for chat, person in people.items():
                text = f"#{number}"
                person.says(text)
                self.said.setdefault(chat, []).append(f"echo {text}")
            await clock.sleep(each)

    def heard(self) -> dict[int, list[str]]:
        heard: dict[int, list[str]] = {}
        for entry in self.server.telegram.request_log.log:
            if entry.status == 200 and isinstance(entry.chat_id, int) and entry.text.startswith("echo "):
                heard.setdefault(entry.chat_id, []).append(entry.text)
        return heard

    async def answered(self, seconds: float) -> None:
        """Wait until everybody has heard everything."""
        async with clock.timeout(seconds):
            while any(set(texts) - set(self.heard().get(chat, ())) for chat, texts in self.said.items()):
                await clock.sleep(0.1)

    async def look(self) -> tuple[list[Record], InboxStats]:
        gate: Tidegate = await in_thread(inbound_member.gate_of, self.terms)
        async with gate:
            return list(await gate.outbox.records(limit=100_000)), await gate.core.handler_registry.stats()

    async def check(self) -> dict[str, int]:
        """Nothing lost, one answer in the store for each, in order; sent twice only where a lease ran out."""
        records, stats = await self.look()
        heard, doubled = self.heard(), 0
        crashes = {(one.message.chat_id, one.message.params["text"]): one.crashes for one in records}
        assert len(crashes) == len(records), "an update had its effect twice"
        assert (stats.waiting, stats.handling, stats.parked) == (0, 0, 0)
        for chat, texts in self.said.items():
            assert list(dict.fromkeys(heard[chat])) == texts, f"order in {chat}"
            for text in texts:
                times = heard[chat].count(text)
                assert times <= 1 + crashes[chat, text], f"{text} came {times} times"
                doubled += times - 1
        report = self.server.telegram.report()
        return {
            "updates": sum(map(len, self.said.values())),
            "doubled": doubled,
            "refused": report["refused"],
        }


@asynccontextmanager
async def scene(folder: Path, **terms: Any) -> AsyncIterator[Scene]:  # noqa: ANN401
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(mortal_redis(folder / "redis"))
        server = await stack.enter_async_context(TelegramServer(limits=GENEROUS))
        given = Terms(store=redis.url, telegram=server.url, spool=str(folder / "spool"), **terms)
        yield Scene(server, given, stack)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def set_webhook(scene: Scene) -> None:
    url = f"http://127.0.0.1:{scene.terms.port}/webhook/telegram/42"
    call = {"url": url, "secret_token": webhook_secret(TOKEN)}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{scene.server.url}/bot{TOKEN}/setWebhook", json=call) as answer,
    ):
        assert answer.status == 200, await answer.text()


@pytest.mark.parametrize(
    ("chats", "seconds"), [(10, 6), pytest.param(40, 60, marks=[pytest.mark.proof, pytest.mark.timeout(200)])]
)
async def test_webhook_processes_behind_one_port_die_and_nobody_notices(
    tmp_path: Path, chats: int, seconds: float
) -> None:
    async with scene(tmp_path, port=free_port()) as stage:
        members = [await stage.start("webhook") for _ in range(3)]
        assert {await line_of(member) for member in members} == {"ready"}
        await set_webhook(stage)

        writing = asyncio.create_task(stage.write(chats, seconds, each=0.2))
        kills = 0
        while not writing.done():
            await asyncio.wait([writing], timeout=2)
            if not writing.done():
                members[kills % 3].kill()
                members[kills % 3] = await stage.start("webhook")
                kills += 1
        await writing
        await stage.answered(40)
        found = await stage.check()

    print({**found, "kills": kills})  # noqa: T201
    assert kills >= 2
    assert found["refused"] == 0


@pytest.mark.proof  # of python-telegram-bot there is a short run: to start aiogram takes seconds
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("chats", "seconds"), [(40, 60)])
async def test_a_second_polling_process_takes_over_without_a_fight(
    tmp_path: Path, chats: int, seconds: float
) -> None:
    async with scene(tmp_path) as stage:
        members = [await stage.start("polling") for _ in range(2)]
        names = {await line_of(member): member for member in members}  # both at once: to start takes seconds
        leader = names[await stage.leader()]

        writing = asyncio.create_task(stage.write(chats, seconds, each=0.2))
        await clock.sleep(1)
        leader.kill()
        died = clock.monotonic()
        before = len(stage.heard().get(1001, ()))
        while len(stage.heard().get(1001, ())) < before + 10:
            await clock.sleep(0.05)
            assert clock.monotonic() - died < 12
        taken_over = clock.monotonic() - died
        await writing
        await stage.answered(30)
        found = await stage.check()
        log = stage.server.telegram.request_log.log
        conflicts = sum(entry.status == 409 for entry in log)

    print({**found, "taken_over": round(taken_over, 1), "conflicts": conflicts})  # noqa: T201
    assert conflicts <= 1
