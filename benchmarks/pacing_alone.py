"""Scenarios of `pacing.py` for Tidegate alone: what it promises beyond being fast."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from benchmarks.pacing_processes import Simulator, Weather, simulator, tell
from benchmarks.pacing_senders import Tally, TimedWire, token_of

from tidegate import Tidegate
from tidegate.delivery.sender import SILENCE_AFTER
from tidegate.sim.telegram import Limits

CAP: Final = 300.0
HEAVY: Final = 999  # the chat with many messages
Result = dict[str, Any]


class Lab(NamedTuple):
    gate: Tidegate
    wire: TimedWire
    telegram: Simulator
    tally: Tally


@asynccontextmanager
async def _lab(weather: Weather, tally: Tally) -> AsyncIterator[Lab]:
    async with simulator(weather) as telegram:
        wire = TimedWire(tally)
        async with Tidegate("memory://", wire=wire) as gate:
            gate.add_bot(token_of(1), api_url=telegram.url)
            yield Lab(gate, wire, telegram, tally)


async def _watch(lab: Lab, seconds: float) -> None:
    """Let time pass, as progress."""
    started = time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        lab.tally.done = passed
        await asyncio.sleep(min(0.2, seconds - passed))


async def replies(_: str, tally: Tally, *, small: bool) -> Result:
    """Direct calls at random times while a broadcast of low priority has every slot.

    The wait of a reply is the time of `gate.call` less the time its HTTP call took: from the wish to the
    first step on the wire, and from the answer to its return.
    """
    seconds = 12.0 if small else 60.0
    tell(total=seconds)
    async with _lab(Weather(), tally) as lab:
        broadcast = ({"chat_id": 1000 + i, "text": "News #0"} for i in range(10_000))
        await lab.gate.send_many(broadcast, priority="low")
        draw, asking, waits = random.Random(1), set[asyncio.Task[None]](), list[float]()

        async def reply(number: int) -> None:
            text, started = f"Reply #{number}", time.perf_counter()
            await lab.gate.call("sendMessage", {"chat_id": 100_000 + number, "text": text})
            waits.append(time.perf_counter() - started - lab.wire.seconds_by_text[text])

        async def people() -> None:
            for number in range(1_000_000):
                await asyncio.sleep(draw.expovariate(5))
                asking.add(asyncio.create_task(reply(number)))

        async with lab.gate.worker():
            await asyncio.sleep(3)  # until the broadcast is at full speed
            talking = asyncio.create_task(people())
            await _watch(lab, seconds)
            talking.cancel()
            await asyncio.gather(*asking)
        seen = await lab.telegram.seen()
    waits = sorted(1000 * wait for wait in waits)
    p50, p99 = statistics.median(waits), waits[int(0.99 * len(waits))]
    sent = len(seen.log) / (seen.log[-1].at - seen.log[0].at)
    return {
        "replies": len(waits),
        "p50_ms": round(p50, 1),
        "p99_ms": round(p99, 1),
        "worst_ms": round(waits[-1], 1),
        "refused": seen.report["refused"],
        "avg_rps": round(sent, 2),
        "passed": p50 < 50 and p99 < 250 and not seen.report["refused"],
    }


async def heavy(variant: str, tally: Tally, *, small: bool) -> Result:
    """How long 600 chats need for a message each, alone or beside a chat with 10,000 that came before."""
    many, others = (1_000, 150) if small else (10_000, 600)
    tell(total=others)
    async with _lab(Weather(), tally) as lab:
        if variant == "beside":
            await lab.gate.send_many({"chat_id": HEAVY, "text": f"More #{i}"} for i in range(many))
        tickets = await lab.gate.send_many({"chat_id": 1000 + i, "text": "Hello #0"} for i in range(others))

        async def wait(ticket: Any) -> None:  # noqa: ANN401
            await ticket.delivered()
            tally.count()

        started = time.perf_counter()
        async with lab.gate.worker():
            await asyncio.gather(*map(wait, tickets))
            seconds = time.perf_counter() - started
        seen = await lab.telegram.seen()
    taken = sum(arrival.chat == HEAVY for arrival in seen.log)
    return {
        "seconds": round(seconds, 2),
        "heavy_sent": taken,
        "refused": seen.report["refused"],
        "passed": not seen.report["refused"],
    }


HYPOTHESES: Final = {"chat": Weather(bot="20/1"), "bot": Weather(bot="20/1", closes="bot")}


async def hypotheses(variant: str, tally: Tally, *, small: bool) -> Result:
    """A bot limit of 20/s where the rules say 30/s: the 429s in each minute, as a share of its calls."""
    minute = 20.0 if small else 60.0
    tell(total=3 * minute)
    async with _lab(HYPOTHESES[variant], tally) as lab:
        await lab.gate.send_many(
            {"chat_id": 1000 + i, "text": "Hello #0"} for i in range(int(3 * minute * 30))
        )
        async with lab.gate.worker():
            await _watch(lab, 3 * minute)
        seen = await lab.telegram.seen()
    calls, refused = Counter[int](), Counter[int]()
    for arrival in seen.log:
        index = min(2, int((arrival.at - seen.log[0].at) / minute))
        calls[index] += 1
        refused[index] += arrival.status == 429
    shares = [refused[i] / max(1, calls[i]) for i in range(3)]
    later = (refused[1] + refused[2]) / max(1, calls[1] + calls[2])
    return {
        "refused_by_minute": [refused[i] for i in range(3)],
        "calls_by_minute": [calls[i] for i in range(3)],
        "shares": [round(share, 4) for share in shares],
        "share_after_first_minute": round(later, 5),
        "of_real_limit": round((calls[2] - refused[2]) / minute / (20 / (1 + tally.round_trip)), 3),
        "passed": max(shares[1:]) < 0.005,
    }


FAULTS: Final = {
    "lost": Weather(server_error=0.2, lost_answer=0.05),
    "silent": Weather(server_error=0.2, silent=0.05),
}


async def faults(variant: str, tally: Tally, *, small: bool) -> Result:
    """One message to each of 2,000 chats; every fourth asks to be parked where its outcome is unknown.

    The rate is that of calls, retries included, until nine in ten messages have ended (what is left then
    waits for its next try, not for a limit), against 30/(1+r). A silent call counts in r with the seconds
    it holds its slots.
    """
    number = 300 if small else 2_000
    tell(total=number)
    async with _lab(FAULTS[variant], tally) as lab:
        started = time.perf_counter()
        tickets = await lab.gate.send_many(
            {"chat_id": 1000 + i, "text": "Hello #0", "on_unknown": "resend" if i % 4 else "park"}
            for i in range(number)
        )
        async with lab.gate.worker():
            most_ended = await _until_drained(lab, number)
            seconds = time.perf_counter() - started
        stats = await lab.gate.stats()
        seen = await lab.telegram.seen()
    window = most_ended - started
    calls = sum(at < most_ended for at, _ in tally.trips)
    held = statistics.fmean(min(trip, SILENCE_AFTER) for _, trip in tally.trips)
    answered = statistics.fmean(trip for _, trip in tally.trips if trip < SILENCE_AFTER)
    limit = Limits().bot
    ended = stats.delivered + stats.dead + stats.parked
    share = calls / window / (limit.count / (limit.seconds + held))
    return {
        "accepted": len(tickets),
        "delivered": stats.delivered,
        "parked": stats.parked,
        "dead": stats.dead,
        "lost": len(tickets) - ended,
        "doubled": seen.report["doubled"],
        "refused": seen.report["refused"],
        "calls": len(tally.trips),
        "seconds": round(seconds, 2),
        "seconds_for_nine_in_ten": round(window, 2),
        "share": round(share, 3),
        "share_of_answered": round(calls / window / (limit.count / (limit.seconds + answered)), 3),
        "passed": ended == len(tickets) and share >= 0.8 and not seen.report["refused"],
    }


async def _until_drained(lab: Lab, number: int) -> float:
    """Returns when nine in ten had ended."""
    most_ended = 0.0
    drained = asyncio.create_task(lab.gate.drained())
    with suppress(TimeoutError):
        async with asyncio.timeout(CAP):
            while not drained.done():
                stats = await lab.gate.stats()
                lab.tally.done = stats.delivered + stats.dead + stats.parked
                if not most_ended and lab.tally.done >= 0.9 * number:
                    most_ended = time.perf_counter()
                await asyncio.wait([drained], timeout=0.1)
    drained.cancel()
    return most_ended or time.perf_counter()


class Alone(NamedTuple):
    title: str
    run: Callable[..., Awaitable[Result]]
    variants: Mapping[str, str]


ALONE: Final[Mapping[str, Alone]] = {
    "replies": Alone(
        "replies while 10,000 low messages are sent", replies, {"broadcast": "5 replies/s beside it"}
    ),
    "heavy": Alone(
        "600 chats beside one with 10,000 messages", heavy, {"without": "without it", "beside": "beside it"}
    ),
    "hypotheses": Alone(
        "a bot limit of 20/s that the rules do not know",
        hypotheses,
        {"chat": "a 429 closes the chat", "bot": "a 429 closes the bot"},
    ),
    "faults": Alone("20 % server errors and …", faults, {"lost": "5 % lost answers", "silent": "5 % silent"}),
}
