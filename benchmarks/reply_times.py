"""Measures the reply times of the libraries' own example bots, plain and attached to a gate.

    python tests/public_examples.py        # once: fetches the examples
    python benchmarks/reply_times.py [--rounds 3] [--only echo]

Both bots of an example run side by side and are asked in turns, plain and attached: so whatever else the
machine does meets both. A dozen users have an ordinary conversation with each, step by step; counted is the
time from what a user does to the first reply at the simulator. The steps of a user are 1.1 s apart, so no
limit of a chat binds; nor is what a bot says as its second message to one step counted, which may have to
wait for that limit. The gate has its usual limits, and a SQLite file.
"""

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from public_examples import LIBRARIES, folder_of
from system.bots import run_aiogram, run_ptb
from system.bots.public_example import ATTACHED_BUILDER, NOTHING, POLLING, RUN_POLLING, Change, load
from system.bots.scenes import GENEROUS
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

AIOGRAM, PTB = LIBRARIES
TOKENS: Final = {"plain": "41:plain", "attached": "42:attached"}
FIRST_USER: Final = 1  # asks whether it is there
USERS: Final = 12  # in a round
APART: Final = 1.1  # seconds between two steps of a user: a chat takes one message a second


class Step(NamedTuple):
    """What a user does, and how many messages the bot answers it with."""

    act: Callable[[Person], object]
    replies: int = 1


class Example(NamedTuple):
    """An example bot, and a conversation with it."""

    library: str
    file: str
    steps: list[Step]
    change: Change


def say(text: str, replies: int = 1) -> Step:
    return Step(lambda person: person.says(text), replies)


def press(data: str) -> Step:
    return Step(lambda person: person.presses(data))


def pay() -> Step:
    return Step(lambda person: person.pays())


def aiogram(file: str, *steps: Step, change: Change = POLLING) -> Example:
    return Example(AIOGRAM, file, list(steps), change)


def ptb(file: str, *steps: Step) -> Example:
    return Example(PTB, file, list(steps), ATTACHED_BUILDER)


EXAMPLES: Final = [
    aiogram("echo_bot.py", say("/start"), say("high water"), say("low water")),
    aiogram("error_handling.py", say("/age"), say("/age old"), say("/age 42"), say("/name Ann")),
    aiogram("finite_state_machine.py", say("/start"), say("Ann"), say("yes"), say("Python", 2)),
    aiogram("quiz_scene.py", say("/start"), say("/quiz", 2), say("Paris"), say("Madrid"), say("Berlin")),
    aiogram("scene.py", say("hi"), say("demo"), say("Ann", 2), say("yes", 2), change=RUN_POLLING),
    aiogram("stars_invoice.py", say("/start"), pay()),
    ptb("echobot.py", say("/start"), say("high water"), say("/help")),
    ptb("conversationbot.py", say("/start"), say("Girl"), say("/skip"), say("/skip"), say("I sail")),
    ptb("conversationbot2.py", say("/start"), say("Age"), say("42"), say("Done")),
    ptb("inlinekeyboard.py", say("/start"), press("2"), say("/help")),
    ptb("inlinekeyboard2.py", say("/start"), press("0"), press("3"), press("2"), press("1")),
    ptb("paymentbot.py", say("/start"), say("/noshipping"), pay()),
]


async def start(
    stack: AsyncExitStack, example: Example, kind: str, server: TelegramServer, patch: pytest.MonkeyPatch
) -> None:
    """Start one of the two bots in this loop, and return when it answers."""
    token, store = TOKENS[kind], Path("tidegate.db")
    patch.setenv("BOT_TOKEN", token)
    change = NOTHING if kind == "plain" else example.change
    module = load(folder_of(example.library) / example.file, change, token, store)
    vars(module).update(TOKEN=token, PAYMENT_PROVIDER_TOKEN="provider")
    run = run_aiogram.polling if example.library == AIOGRAM else run_ptb.application
    await stack.enter_async_context(run(module, patch))
    await reply_time(person(server, token, FIRST_USER), example.steps[0])


async def converse(server: TelegramServer, example: Example, users: range) -> dict[str, list[float]]:
    """Have the conversation of these users with both bots, and return the milliseconds of each reply."""
    people = {kind: [person(server, token, user) for user in users] for kind, token in TOKENS.items()}
    waits: dict[str, list[float]] = {kind: [] for kind in TOKENS}
    for step in example.steps:
        for turn in range(len(users)):
            for kind in sorted(TOKENS, reverse=bool(turn % 2)):
                waits[kind].append(await reply_time(people[kind][turn], step))
        everybody = [one for kind in TOKENS for one in people[kind]]
        for _ in range(1, step.replies):
            await asyncio.gather(*(one.hears() for one in everybody))
        await asyncio.sleep(APART)
    return waits


async def reply_time(user: Person, step: Step) -> float:
    began = time.perf_counter()
    step.act(user)
    await user.hears()
    return 1000 * (time.perf_counter() - began)


def person(server: TelegramServer, token: str, user: int) -> Person:
    bot = server.telegram.world.bot(token)
    assert bot is not None
    return Person(server.telegram, bot, user)


async def measure(example: Example, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {kind: [] for kind in TOKENS}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TelegramServer(limits=GENEROUS))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.chdir(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-replies-")))
        (run_aiogram if example.library == AIOGRAM else run_ptb).point_at(server.url, patch)
        for kind in TOKENS:
            await start(stack, example, kind, server, patch)
        for number in range(1, rounds + 2):
            waits = await converse(server, example, range(100 * number, 100 * number + USERS))
            for kind in TOKENS if number > 1 else ():  # the first round warms up
                found[kind] += waits[kind]
        report: dict[str, Any] = server.telegram.report()
        assert report["refused"] == 0
    return found


def main(rounds: int, only: str) -> None:
    logging.disable()  # of the examples
    warnings.simplefilter("ignore")
    print(
        f"{USERS * rounds} users, their steps {APART} s apart; load of the machine {os.getloadavg()[0]:.1f}"
    )
    print("| library | example | replies | plain | attached | difference |")
    print("|---|---|---|---|---|---|")
    for example in EXAMPLES:
        if only not in f"{example.library} {example.file}":
            continue
        found = asyncio.run(measure(example, rounds))
        plain, attached = (statistics.median(found[kind]) for kind in TOKENS)
        print(
            f"| {example.library} | {example.file} | {len(found['plain'])} |"
            f" {plain:.1f} ms | {attached:.1f} ms | {attached - plain:+.1f} ms |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of a library's or an example's name")
    options = parser.parse_args()
    main(options.rounds, options.only)
