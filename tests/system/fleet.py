"""Processes that share one Redis, from outside: started, told to stop, and what Telegram got of them."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from system import fleet_member
from system.fleet_member import Done, Terms, gate_of
from system.killing import in_thread, line_of, running, tell
from system.mortal_redis import MortalRedis, mortal_redis
from tidegate import Tidegate
from tidegate.model import BotId, Record, State
from tidegate.pacing.rules import Rules
from tidegate.sim.faults import Faults, Latency
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.request_log import LoggedCall

EACH_WAY: Final = Latency(5, 40)  # ms
Wanted = dict[tuple[int, int], list[str]]  # texts by bot and chat, in order


def limits_of(rules: Rules) -> Limits:
    return Limits(burst=1, bot=rules.bot, private=rules.private, group=rules.group)


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Tidegate]:
    """For whoever puts and looks."""
    async with await in_thread(gate_of, terms) as gate:  # it reads its scripts
        yield gate


@asynccontextmanager
async def member(role: str, terms: Terms, **changes: Any) -> AsyncIterator[asyncio.subprocess.Process]:  # noqa: ANN401
    """One process; killed at the end, if it has not ended by then."""
    given = msgspec.json.encode(msgspec.structs.replace(terms, **changes)).decode()
    async with running(role, given, script=fleet_member.__file__) as process:
        yield process


@asynccontextmanager
async def fleet(terms: Terms, *each: Mapping[str, Any]) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """A worker for each of these changes of the terms, all of them at work."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(member("worker", terms, **changes)) for changes in each]
        assert {await line_of(worker) for worker in workers} == {"ready"}
        yield workers


async def end_of(worker: asyncio.subprocess.Process) -> Done:
    """It stops, after what is under way."""
    done = msgspec.json.decode(await tell(worker, "stop"), type=Done)
    assert await worker.wait() == 0
    return done


class Scene:
    """A Redis, Telegram as it is far away, and the terms of those who share them."""

    def __init__(self, redis: MortalRedis, server: TelegramServer, terms: Terms) -> None:
        self.redis, self.server, self.terms = redis, server, terms

    @property
    def log(self) -> list[LoggedCall]:
        return list(self.server.telegram.request_log.log)

    async def put(self, wanted: Wanted) -> None:
        """Round by round, so that all chats are on their way at any time."""
        async with opened(self.terms) as gate:
            for bot in self.terms.bots:
                lines = [texts for (owner, _), texts in wanted.items() if owner == bot]
                items = [text for texts in itertools.zip_longest(*lines) for text in texts if text]
                await gate.send_many(
                    ({"chat_id": chat_in(text), "text": text} for text in items), bot=BotId(bot)
                )

    async def records(self) -> dict[tuple[int, str], Record]:
        async with opened(self.terms) as gate:
            return {
                (one.message.bot, one.message.params["text"]): one
                for one in await gate.outbox.records(limit=1_000_000)
            }

    async def check(self, wanted: Wanted) -> dict[str, Any]:
        """Nothing lost, order kept, no 429; a message came more often than once only if its lease ran out.

        Says what Telegram and the store have counted.
        """
        report, records = self.server.telegram.report(), await self.records()
        arrived = arrivals(self.log)
        refused = [(entry.chat_id, entry.text) for entry in self.log if entry.status == 429]
        assert refused == []
        doubled = 0
        for (bot, chat), texts in wanted.items():
            came = arrived[bot, chat]
            assert list(dict.fromkeys(came)) == [text for text in texts if text in set(came)], (
                f"order in {chat}"
            )
            for text in texts:
                record, times = records[bot, text], came.count(text)
                given_up = record.state == State.PARKED and record.reason == "crashes"
                assert record.state == State.DELIVERED or given_up, f"{text} is {record.state}"
                assert times >= 1 or given_up, f"{text} is lost"
                assert times <= 1 + record.crashes, (
                    f"{text} came {times} times after {record.crashes} crashes"
                )
                doubled += max(0, times - 1)
        crashes = sum(record.crashes for record in records.values())
        parked = sum(record.state == State.PARKED for record in records.values())
        return report | {"doubled": doubled, "crashes": crashes, "parked": parked}


@asynccontextmanager
async def scene(
    folder: Path,
    rules: Rules,
    *,
    way_in: Latency = EACH_WAY,
    **terms: Any,  # noqa: ANN401
) -> AsyncIterator[Scene]:
    faults = Faults(latency_in=way_in, latency_out=EACH_WAY)
    async with (
        mortal_redis(folder / "redis") as redis,
        TelegramServer(limits=limits_of(rules), faults=faults) as server,
    ):
        rates: dict[str, Any] = {
            "bot_rate": str(rules.bot),
            "chat_rate": str(rules.private),
            "group_rate": str(rules.group),
        }
        given = Terms(store=redis.url, telegram=server.url, spool=str(folder / "spool"), **rates, **terms)
        yield Scene(redis, server, given)


def messages(bots: Iterable[int], chats: Iterable[int], each: int) -> Wanted:
    """By bot and chat, in order."""
    return {(bot, chat): [f"to {chat} #{number}" for number in range(each)] for bot in bots for chat in chats}


def chat_in(text: str) -> int:
    return int(text.split(" ")[1])


def arrivals(log: Iterable[LoggedCall]) -> Mapping[tuple[int, int], list[str]]:
    """The texts of the queue that Telegram accepted, by bot and chat, in order."""
    texts: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for entry in log:
        if entry.status == 200 and isinstance(entry.chat_id, int) and entry.text.startswith("to "):
            texts[entry.bot, entry.chat_id].append(entry.text)
    return texts
