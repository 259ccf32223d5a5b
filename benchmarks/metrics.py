"""Measures what metrics cost a worker: throughput on a SQLite file with and without them.

    python benchmarks/metrics.py [--pairs 10] [--messages 10000] [--json]

A wire that answers at once and limits that do not bind: the worker is as busy as it can be, which no bot is.
Messages are put by `send_many` and delivered by the worker, each round on a new file. "with" has metrics that
count, and somebody who asks for them at the start and every five seconds. Both turn by turn in one process,
which of them first changes. The table shows the medians, what each pair takes more (the middle half), and the
best rounds of each side, which a busy machine disturbs least. It varies by more than the limit, so the
handlers are also measured alone: the events of a message, published with metrics and without.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.events import Accepted, Attempted, Ended, EventStream
from tidegate.model import BotId, Claim, Delivered, Message, Rate, Record, State, TicketId
from tidegate.ops.metrics import Metrics
from tidegate.ops.metrics_text import render_metrics
from tidegate.pacing.rules import Rules

CLOCK: Final = Clock()
LIMIT: Final = 5.0  # percent
CHATS: Final = 1_000
MANY: Final = Rate(10**6, 0.01)
ROOMY: Final = Rules(bot=MANY, private=MANY, group=MANY, burst=1)
ASKED_EVERY: Final = 5.0  # seconds


class DeafWire(BotApiTransport):
    """Answers at once."""

    async def call(self, *_: object, on_written: Callable[[], None] | None = None, **__: object) -> ApiAnswer:
        if on_written is not None:
            on_written()
        return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None: ...


class Round(NamedTuple):
    seconds: float
    cpu: float


async def one_round(messages: int, *, counted: bool) -> Round:
    with tempfile.TemporaryDirectory() as folder:
        gate = Tidegate(Path(folder, "store.db"), rules=ROOMY, wire=DeafWire())
        gate.add_bot("42:token")
        async with gate, AsyncExitStack() as stack:
            metrics = Metrics(gate) if counted else None
            if metrics is not None:
                asking = asyncio.create_task(ask(metrics))
                stack.callback(asking.cancel)
            began, cpu = CLOCK.monotonic(), CLOCK.cpu()
            await gate.send_many({"chat_id": 1 + i % CHATS, "text": "Hello"} for i in range(messages))
            async with gate.worker():
                await gate.drained()
            done = Round(CLOCK.monotonic() - began, CLOCK.cpu() - cpu)
            if metrics is not None:
                _, text = await render_metrics(metrics, "application/json")
                assert json.loads(text)["tidegate_sends_total"] == messages
        return done


async def ask(metrics: Metrics) -> None:
    while True:
        await render_metrics(metrics)
        await CLOCK.sleep(ASKED_EVERY)


async def measure(pairs: int, messages: int) -> dict[str, Any]:
    await one_round(messages, counted=True)  # warm
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for turn in range(pairs):
        for counted in (False, True) if turn % 2 else (True, False):
            rounds[counted].append(await one_round(messages, counted=counted))
    both = list(zip(rounds[False], rounds[True], strict=True))
    return {
        "pairs": pairs,
        "messages": messages,
        "load": round(os.getloadavg()[0], 1),
        "limit_percent": LIMIT,
        "without_per_second": round(messages / statistics.median(one.seconds for one in rounds[False])),
        "with_per_second": round(messages / statistics.median(one.seconds for one in rounds[True])),
        "time_percent_more": spread([100 * (new.seconds / old.seconds - 1) for old, new in both]),
        "cpu_percent_more": spread([100 * (new.cpu / old.cpu - 1) for old, new in both]),
        "best_cpu_percent_more": round(100 * (best(rounds[True]) / best(rounds[False]) - 1), 2),
        "cpu_microseconds": round(1e6 * statistics.median(one.cpu for one in rounds[False]) / messages, 1),
        "handlers_microseconds": round(handlers_alone(messages), 2),
    }


def best(rounds: list[Round]) -> float:
    """Return the CPU of the best quarter."""
    return statistics.mean(sorted(one.cpu for one in rounds)[: max(1, len(rounds) // 4)])


def handlers_alone(messages: int) -> float:
    """Return the microseconds of CPU that the events of one message take more with metrics."""
    message = Message(id=TicketId("t"), bot=BotId(42), chat_id=1, method="sendMessage", params={"text": "x"})
    claim, outcome = Claim(message, 1, 1), Delivered({"message_id": 1})
    record = Record(message=message, state=State.DELIVERED, created_at=1.0, settled_at=2.0)
    batch = [message] * 500  # as `send_many` puts them

    def used(stream: EventStream) -> float:
        began = CLOCK.cpu()
        for number in range(messages):
            if number % len(batch) == 0:
                stream.publish(Accepted(batch))
            stream.publish(Attempted(claim, outcome, 0.03))
            stream.publish(Ended(record))
        return CLOCK.cpu() - began

    plain, counted = Tidegate("memory://"), Tidegate("memory://")
    Metrics(counted)
    taken = [used(counted.core.events) - used(plain.core.events) for _ in range(5)]
    return 1e6 * statistics.median(taken) / messages


def spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = uvloop.run(measure(given.pairs, given.messages))
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{given.pairs} pairs of {given.messages:,} messages, load {found['load']}; the limit is {LIMIT} %\n"
    )
    print("| | messages a second |")
    print("|---|---|")
    print(f"| without metrics | {found['without_per_second']:,} |")
    print(f"| with metrics | {found['with_per_second']:,} |")
    for name, text in (("time_percent_more", "% more time"), ("cpu_percent_more", "% more CPU")):
        print(
            f"\n{found[name]['median']:+.1f} {text} ({found[name]['low']:+.1f} … {found[name]['high']:+.1f})"
        )
    print(f"\n{found['best_cpu_percent_more']:+.1f} % more CPU in the best quarter of the rounds")
    alone, whole = found["handlers_microseconds"], found["cpu_microseconds"]
    share = 100 * alone / whole
    print(f"\nThe handlers alone: {alone:.1f} µs of {whole:.0f} µs of CPU for each message, {share:.1f} %")


if __name__ == "__main__":
    main()
