"""A bot with jobs, run as a process of its own: `job_bot.py URL`. It does what each line of input says.

`submit NAME COUNT ARGUMENTS`: submits so many, all at once, each for a chat of its own; says how long the
slowest took and how late the event loop was meanwhile. `wait COUNT`: waits until so many have ended, says
the counts by state. `cancel ID`. `end`: stops in good order.
"""

import asyncio
import json
import sys
from collections import Counter
from typing import Any, Final

from system.job_functions import gate
from system.killing import TOKEN
from tidegate.clock import Clock

FIRST_CHAT: Final = 1_000
clock: Final = Clock()


class LoopDelay:
    """How late naps of 5 ms end, at worst."""

    worst = 0.0

    async def watch(self) -> None:
        while True:
            before = clock.monotonic()
            await clock.sleep(0.005)
            self.worst = max(self.worst, clock.monotonic() - before - 0.005)


async def submit(name: str, count: str, *arguments: str) -> dict[str, Any]:
    job, delay = gate.jobs.named(name), LoopDelay()
    watch = asyncio.create_task(delay.watch())
    given = list(map(json.loads, arguments))

    async def one(number: int) -> float:
        before = clock.monotonic()
        await job.options(chat_id=FIRST_CHAT + number, key=f"{name}-{number}").submit(number, *given)
        return clock.monotonic() - before

    took = await asyncio.gather(*map(one, range(int(count))))
    watch.cancel()
    return {"slowest_ms": round(max(took) * 1000, 1), "loop_ms": round(delay.worst * 1000, 1)}


async def wait(count: str) -> dict[str, int]:
    ended = {"done", "dead", "cancelled"}
    while True:
        states: Counter[str] = Counter()
        for (_, state), jobs in (await gate.jobs.counts()).items():
            states[state] += jobs
        if sum(jobs for state, jobs in states.items() if state in ended) >= int(count):
            return dict(states)
        await clock.sleep(0.1)


async def cancel(number: str) -> bool:
    return bool(await gate.jobs.cancel(int(number)))


async def main(url: str) -> None:
    commands: dict[str, Any] = {"submit": submit, "wait": wait, "cancel": cancel}
    async with gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            await gate.jobs.counts()  # the database is open: a bot that runs for a while is measured
            print("ready", flush=True)  # noqa: T201
            while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
                name, *arguments = line.split()
                if name == "end":
                    break
                print(json.dumps(await commands[name](*arguments)), flush=True)  # noqa: T201
            await gate.drained()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
