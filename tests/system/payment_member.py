"""The payment bot, there to be killed: `payment_member.py CONFIG STORE`, the config as JSON.

To import aiogram takes seconds. So this process imports everything once, and each line that it is told makes
a child of it that lives the bot's life: `live`, or `live park` for a bot that parks what may have been sent.
It says the child's number; the child says `ready`, and what it restores.
"""

import logging
import os
import sys
import threading

import msgspec
import uvloop

from payment_bot.bot import PaymentBot
from payment_bot.config import Books, Config
from tidegate import Tidegate, leader_lease


async def live(config: Config, store: str, *, park: bool) -> None:
    bot = PaymentBot(config, gate=Tidegate(store), say=say, on_unknown="park" if park else "resend")
    bot.executor.router.startup.register(lambda: say("ready"))
    await bot.run()


def config_of(text: str) -> Config:
    told = msgspec.json.decode(text)
    books = Books(*told.pop("books"))
    return Config(books=books, interval=0.4, restore=(1_000, 0.1), **told)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def bear(config: Config, store: str, *, park: bool) -> int:
    """A child by fork, of a process that has neither threads nor a loop."""
    assert threading.active_count() == 1
    if child := os.fork():
        say(f"child {child}")
        return child
    try:
        uvloop.run(live(config, store, park=park))
    finally:
        os._exit(1)


def main(config: str, store: str) -> None:
    # The lease of who polls, which outlives a kill: short, so that the next life polls too.
    leader_lease.LEASE_SECONDS = 0.6  # type: ignore[misc]
    leader_lease.RENEW_INTERVAL, leader_lease.TAKEOVER_INTERVAL = 0.2, 0.1  # type: ignore[misc]
    say("imported")
    before = 0
    for line in sys.stdin:
        if before:
            os.waitpid(before, 0)  # dead: the store is free
        before = bear(config_of(config), store, park=line.strip() == "live park")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(*sys.argv[1:])
