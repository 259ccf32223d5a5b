"""Section `wake` of `outbox.py`: from the wish to put a message until it is on the wire, where all is idle.

Monotonic time is the same in all processes of a Linux machine.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import uvloop
from benchmarks.outbox_subject import RULES, STORE, Figures, Section, Subject, Target

from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, BotApiTransport

TARGET: Final = Target("p99_ms", below=150)
BETWEEN: Final = (0.01, 0.12)  # seconds between two puts, at random: no beat with whoever polls
SCRIPT: Final = Path(__file__).with_name("outbox.py")
Times = dict[str, float]  # by the text of a message


class NotingWire(BotApiTransport):
    """Answers at once, and knows when it was asked."""

    def __init__(self) -> None:
        self.asked: Times = {}

    async def call(
        self,
        token: str,  # noqa: ARG002
        method: str,  # noqa: ARG002
        params: Mapping[str, Any],
        *,
        api_url: str,  # noqa: ARG002
        deadline: float,  # noqa: ARG002
        on_left: Callable[[], None] | None = None,  # noqa: ARG002
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,  # noqa: ARG002
    ) -> ApiAnswer:
        self.asked[params["text"]] = time.monotonic()
        if on_written is not None:
            on_written()
        return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None:
        pass


async def produce(gate: Tidegate, number: int) -> tuple[Times, Times]:
    """When each was wished for, and when its put had returned."""
    wished: Times = {}
    accepted: Times = {}
    draw = random.Random(1)
    for i in range(number):
        await asyncio.sleep(draw.uniform(*BETWEEN))
        text = f"#{i}"
        wished[text] = time.monotonic()
        await gate.send(chat_id=1 + i, text=text)
        accepted[text] = time.monotonic()
    return wished, accepted


async def produce_elsewhere(folder: Path, number: int) -> tuple[Times, Times]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "--produce", str(folder), str(number), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    wished, accepted = json.loads(output)
    return wished, accepted


async def deliver(folder: Path, number: int, *, elsewhere: bool) -> Figures:
    wire = NotingWire()
    async with Tidegate(folder / STORE, rules=RULES, wire=wire) as gate:
        gate.add_bot("42:token")
        async with gate.worker():
            wished, accepted = await (
                produce_elsewhere(folder, number) if elsewhere else produce(gate, number)
            )
            await gate.drained()
    assert len(wire.asked) == number
    waits = sorted(1e3 * (at - wished[text]) for text, at in wire.asked.items())
    return {
        "puts": number,
        "p50_ms": statistics.median(waits),
        "p99_ms": waits[int(0.99 * (number - 1))],
        "worst_ms": waits[-1],
        "put_p50_ms": statistics.median(1e3 * (at - wished[text]) for text, at in accepted.items()),
    }


def second_process(folder: Path, number: int) -> None:
    """Its whole life."""

    async def run() -> None:
        async with Tidegate(folder / STORE, rules=RULES) as gate:
            gate.add_bot("42:token")
            print(json.dumps(await produce(gate, number)))

    uvloop.run(run())


def section(*, small: bool) -> Section:
    number = 50 if small else 200

    def subject(label: str, *, elsewhere: bool) -> Subject:
        def run(folder: Path) -> Figures:
            return uvloop.run(deliver(folder, number, elsewhere=elsewhere))

        return Subject(label, run, rounds=1, targets=(TARGET,))

    subjects = {
        "elsewhere": subject("put by a second process", elsewhere=True),
        "here": subject("put by the sender's own process", elsewhere=False),
    }
    return Section("from put to wire", subjects)
