"""What one update is charged with, and what comes of it. One contract suite runs on every kind of buckets."""

from typing import Final, Protocol

import msgspec


class Pass(msgspec.Struct, frozen=True):
    """It is to be handled."""


class Held(msgspec.Struct, frozen=True):
    """It is not to be handled. Its sender may come again in `wait` seconds.

    `answer`: tell him so. True once in a window for each user, and never in front of a group.
    """

    answer: bool
    wait: float


Verdict = Pass | Held

LATE: Final = 60.0  # seconds

PASS: Final = Pass()


class Charge(msgspec.Struct, frozen=True):
    """`user` or `chat` is None where there is none to charge."""

    bot: int
    user: int | None
    chat: int | None
    cost: float
    never_held: bool = False
    may_answer: bool = False  # he alone would see it
    album: str | None = None  # the parts of one share a verdict, and are charged once
    sent_at: float | None = None  # seconds since the epoch, where it says so

    def age(self, now: float) -> float:
        """Seconds by which it is late. After a downtime all that was written meanwhile comes at once: each is
        charged as of when it was written. Below a minute it is now: clocks differ.
        """
        age = 0.0 if self.sent_at is None else now - self.sent_at
        return age if age >= LATE else 0.0


class Buckets(Protocol):
    async def charge(self, charge: Charge) -> Verdict:
        """One atomic step: all that is charged is taken, or, where it is held, nothing. Never raises."""
        ...
