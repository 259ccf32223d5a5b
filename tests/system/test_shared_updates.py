"""Two programs read one bot's updates through a gateway that is killed meanwhile: each gets all of them."""

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from system.operators import PATIENCE, TOKEN, Desk, running, telegram
from tidegate.clock import Clock
from tidegate.gateway.shared_updates import SharingOptions
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.stores.redis.store import RedisStore
from unit.gateway import gateway_caller as caller

UPDATES, LIMIT = 300, 7
CLOCK = Clock()


class Reader:
    """A program that polls. It confirms what it has got with its next poll, as bots do."""

    def __init__(self, url: str, name: str) -> None:
        prefix = f"/reader/{name}" if name else ""
        self._url = f"{url}{prefix}/bot{TOKEN}/getUpdates"
        self.offset = 0
        self.texts: list[str] = []
        self.statuses: set[int] = set()
        self.polls = 0

    async def run(self, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                params = {"offset": self.offset, "limit": LIMIT, "timeout": 5 if self.polls else 0}
                async with session.post(self._url, json=params) as answer:
                    self.statuses.add(answer.status)
                    self._take(await answer.json())
                    self.polls += 1
            except aiohttp.ClientError:  # the gateway is being killed
                await CLOCK.sleep(0.05)

    def _take(self, body: dict[str, Any]) -> None:
        for update in body["result"]:
            assert update["update_id"] >= self.offset, "what was confirmed came again"
            self.texts.append(update["message"]["text"])
            self.offset = max(self.offset, update["update_id"] + 1)


@contextmanager
def gateway(folder: Path, simulated: str, port: int = 0) -> Iterator[str]:
    """The address of a gateway. It is killed at the end."""
    command = ("gateway", "--share-updates", "--listen", f"127.0.0.1:{port}", "--telegram", simulated)
    with running(*command, folder=folder) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]


async def until(done: Callable[[], bool]) -> None:
    async with CLOCK.timeout(PATIENCE):
        while not done():
            await CLOCK.sleep(0.01)


async def test_each_reader_gets_every_update_though_the_gateway_is_killed(tmp_path: Path) -> None:
    texts = [f"#{number}" for number in range(UPDATES)]
    with ExitStack() as stack:  # processes are started and killed in threads
        simulated = await asyncio.to_thread(stack.enter_context, telegram())
        first = stack.enter_context(ExitStack())
        url = await asyncio.to_thread(first.enter_context, gateway(tmp_path, simulated))
        port, desk = int(url.rpartition(":")[2]), Desk(tmp_path, simulated)

        def write() -> None:
            for text in texts:
                desk.say_to_telegram("say", bot=42, user=7, text=text)

        readers = [Reader(url, ""), Reader(url, "stats")]
        async with aiohttp.ClientSession() as session:
            polling = [asyncio.create_task(reader.run(session)) for reader in readers]
            # A new reader begins at the next update: it has to be known before that.
            await until(lambda: all(reader.polls for reader in readers))
            writing = asyncio.create_task(asyncio.to_thread(write))
            await until(lambda: min(len(reader.texts) for reader in readers) > UPDATES // 4)
            await asyncio.to_thread(first.close)
            await asyncio.to_thread(stack.enter_context, gateway(tmp_path, simulated, port))
            await writing
            await until(lambda: all(set(texts) <= set(reader.texts) for reader in readers))
            for task in polling:
                task.cancel()
            await asyncio.wait(polling)
        log = await asyncio.to_thread(calls_of, simulated)
        await asyncio.to_thread(stack.close)

    for reader in readers:
        assert list(dict.fromkeys(reader.texts)) == texts  # in order
        assert len(reader.texts) <= UPDATES + LIMIT  # again: only what was not confirmed at the kill
        assert reader.statuses == {200}
    # The poll of the killed process, which nobody hears, is ended by the next one.
    assert sum(entry["status"] == 409 for entry in log) <= 1


def calls_of(simulated: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{simulated}/sim/log?bot=42", timeout=PATIENCE) as answer:  # noqa: S310  (loopback)
        found: list[dict[str, Any]] = json.load(answer)["log"]
    return found


async def test_gateways_on_one_redis_share_one_poll_and_one_takes_over(empty_redis_url: str) -> None:
    server = SimulatedTelegram(CLOCK)
    stores: dict[str, Any] = {"telegram": server, "store": empty_redis_url, "sharing": SharingOptions()}
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(caller.gateway(CLOCK, **stores))
        leaving = await stack.enter_async_context(AsyncExitStack())
        two = await leaving.enter_async_context(caller.gateway(CLOCK, **stores))
        assert isinstance(two.gate.core.store, RedisStore)
        bot = server.world.bot(caller.TOKEN)
        assert bot is not None

        async def poll(simulated: caller.SimulatedGateway, reader: str, offset: int) -> list[str]:
            params = {"offset": offset, "timeout": 20}
            answer = await simulated.call("getUpdates", params, prefix=f"/reader/{reader}")
            return [update["message"]["text"] for update in answer.json["result"]]

        # The second one leads: it is the one that leaves.
        assert await two.call("getUpdates", {}, prefix="/reader/b")
        assert await one.call("getUpdates", {}, prefix="/reader/a")
        polls = [asyncio.create_task(poll(one, "a", 0)), asyncio.create_task(poll(two, "b", 0))]
        await CLOCK.sleep(0.3)
        bot.updates.put("message", {"text": "hello"})
        async with CLOCK.timeout(PATIENCE):
            told = [await each for each in polls]
        fetched = [[call.method for call in each.network.calls].count("getUpdates") for each in (one, two)]
        older = asyncio.create_task(one.call("getUpdates", {"offset": 2, "timeout": 20}, prefix="/reader/a"))
        await CLOCK.sleep(0.1)
        newer = asyncio.create_task(poll(two, "a", 2))
        await CLOCK.sleep(0.1)
        bot.updates.put("message", {"text": "again"})
        async with CLOCK.timeout(PATIENCE):
            ended, got = await older, await newer
        await leaving.aclose()
        waiting = asyncio.create_task(poll(one, "a", 3))
        bot.updates.put("message", {"text": "from the other one"})
        async with CLOCK.timeout(PATIENCE):
            last = await waiting

    assert told == [["hello"], ["hello"]]
    assert fetched[0] == 0
    assert fetched[1] > 0
    assert (ended.status, got) == (409, ["again"])  # also across processes
    assert last == ["from the other one"]
