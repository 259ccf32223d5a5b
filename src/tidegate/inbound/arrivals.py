"""What arrives, and what is held of it: frozen, no I/O."""

from typing import Final, NewType

import msgspec

Source = NewType("Source", str)  # who sent it: bot_source(42), hook_source("payments")

SUSPECT: Final = 2  # crashes after which an arrival is handled with no other suspect beside it


def bot_source(bot: int) -> Source:
    return Source(f"bot:{bot}")


def hook_source(name: str) -> Source:
    return Source(f"hook:{name}")


class Arrival(msgspec.Struct, frozen=True):
    """`key` tells it from everything else of its source: an update_id, the id of an event.

    Those of one `lane` of a source are handled one at a time, in the order in which they came.
    """

    source: Source
    key: str
    lane: str
    body: bytes


class Held(msgspec.Struct, frozen=True):
    """An arrival that was given to this process to handle; nobody else has it as long as it is held."""

    id: str  # in the inbox
    arrival: Arrival
    arrived_at: float
    attempts: int = 0  # that failed before this one
    crashes: int = 0  # how often whoever held it has died

    @property
    def is_suspect(self) -> bool:
        return self.crashes >= SUSPECT


class Parked(msgspec.Struct, frozen=True):
    """One that was given up, kept until somebody decides."""

    arrival: Arrival
    arrived_at: float
    parked_at: float
    reason: str
