"""kill -9, again and again, at any instant: nothing is lost, and nothing is doubled that must not be."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from system.killing import LIMITS, TOKEN, arrivals, asked, clock, kill, line_of, running
from tidegate import Tidegate
from tidegate.sim.faults import Faults, Latency
from tidegate.sim.telegram.http import TelegramServer

LATENCY = Latency(5, 40)  # ms, each way
PEOPLE, GROUPS = range(1, 41), range(-1, -21, -1)


def messages(private: int, group: int) -> dict[int, list[str]]:
    """By chat, in order. What is sent to odd chats must not be doubled."""
    counts = dict.fromkeys(PEOPLE, private // len(PEOPLE)) | dict.fromkeys(GROUPS, group // len(GROUPS))
    return {chat: [f"to {chat} #{number}" for number in range(count)] for chat, count in counts.items()}


async def put(store: Path, wanted: dict[int, list[str]]) -> None:
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN)
        # Round by round: a line of each chat, so that all of them are on their way at any time.
        longest = max(map(len, wanted.values()))
        await gate.send_many(
            {"chat_id": chat, "text": texts[number], "on_unknown": "park" if chat % 2 else "resend"}
            for number in range(longest)
            for chat, texts in wanted.items()
            if number < len(texts)
        )


class Casualties:
    """What was on its way when a sender was killed, which nobody can know the end of."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.kills = 0

    async def count(self, store: Path) -> None:
        [[found]] = await asked(store, "SELECT count(*) FROM messages WHERE state = 'sending'")
        assert isinstance(found, int)
        self.in_flight += found
        self.kills += 1
        assert await asked(store, "PRAGMA integrity_check") == [("ok",)]


async def kill_again_and_again(store: Path, url: str, kills: int, seed: int) -> Casualties:
    """Let senders live for a moment each, some not long enough to begin; the last one may finish."""
    draw, casualties = random.Random(seed), Casualties()
    while casualties.kills < kills:
        async with running("sender", str(store), url, str(draw.random())) as process:
            if draw.random() < 0.8:
                assert await line_of(process) == "sending"
            await clock.sleep(draw.uniform(0.0, 0.6))
            assert "drained" not in await kill(process)
        await casualties.count(store)
    async with running("sender", str(store), url, str(seed)) as process:
        assert [await line_of(process), await line_of(process)] == ["sending", "drained"]
        assert await process.wait() == 0
    return casualties


async def check_kills(tmp_path: Path, *, kills: int, private: int, group: int) -> None:
    store, wanted = tmp_path / "store.db", messages(private, group)
    await put(store, wanted)
    async with TelegramServer(
        limits=LIMITS, faults=Faults(latency_in=LATENCY, latency_out=LATENCY)
    ) as server:
        casualties = await kill_again_and_again(store, server.url, kills, seed=kills)
        arrived, report = arrivals(server.telegram.request_log.log), server.telegram.report()

    print(f"{casualties.kills} kills, {casualties.in_flight} messages in flight: {report}")  # noqa: T201
    assert report["refused"] == 0, report["refused_by"]
    ended = dict(await asked(store, "SELECT state, count(*) FROM messages GROUP BY state"))
    assert sum(ended.values()) == sum(map(len, wanted.values()))
    assert set(ended) <= {"delivered", "parked"}

    doubled = 0
    for chat, texts in wanted.items():
        came = arrived[chat]
        assert list(dict.fromkeys(came)) == [text for text in texts if text in set(came)], f"order in {chat}"
        twice = Counter(came).total() - len(set(came))
        assert twice == 0 or chat % 2 == 0, f"doubled in {chat}, where it must not be"
        doubled += twice
        missing = len(texts) - len(set(came))
        query = "SELECT count(*) FROM messages WHERE state = 'parked' AND chat_id = ?"
        [[letters]] = await asked(store, query, chat)
        assert missing <= letters, f"{missing - letters} messages to {chat} are lost"
    assert doubled <= casualties.in_flight
    assert ended.get("parked", 0) <= casualties.in_flight
    async with Tidegate(store) as gate:
        stats = await gate.stats()
    assert (stats.waiting, stats.sending, stats.refused) == (0, 0, 0)
    assert {"delivered": stats.delivered, "parked": stats.parked, "dead": stats.dead} == {
        state: ended.get(state, 0) for state in ("delivered", "parked", "dead")
    }


async def test_senders_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    await check_kills(tmp_path, kills=5, private=400, group=160)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_senders_that_are_killed_fifty_times_lose_nothing(tmp_path: Path) -> None:
    await check_kills(tmp_path, kills=50, private=3_600, group=1_400)


async def check_producers(tmp_path: Path, *, rounds: int, at_once: int) -> None:
    store, draw = tmp_path / "store.db", random.Random(rounds)
    told: set[str] = set()
    kept: set[str] = set()

    async def produce(name: str, lives: float) -> list[str]:
        async with running("producer", str(store), name) as process:
            said = [f"{await line_of(process)}\n"]
            await clock.sleep(lives)
            return [*said, *(await kill(process)).splitlines(keepends=True)]

    for number in range(rounds):
        said = await asyncio.gather(
            *(produce(f"{number}-{one}", draw.uniform(0.0, 0.5)) for one in range(at_once))
        )

        told |= {line.rstrip("\n") for lines in said for line in lines if line.endswith("\n")}
        kept = {ticket for [ticket] in await asked(store, "SELECT id FROM messages")}
        assert told <= kept
        assert await asked(store, "PRAGMA integrity_check") == [("ok",)]
    async with Tidegate(store) as gate:
        assert (await gate.stats()).waiting == len(kept)
    print(f"{rounds * at_once} producers killed: {len(told)} messages accepted, {len(kept)} kept")  # noqa: T201
    assert len(told) > 10 * rounds


async def test_what_killed_producers_were_told_is_accepted_is_there(tmp_path: Path) -> None:
    await check_producers(tmp_path, rounds=2, at_once=3)


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_what_many_killed_producers_were_told_is_accepted_is_there(tmp_path: Path) -> None:
    await check_producers(tmp_path, rounds=25, at_once=3)
