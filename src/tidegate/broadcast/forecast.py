"""How long a broadcast takes, and when its last message leaves: by the limit, if nothing else is sent."""

import reprlib

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.pacing.departures import departure


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Other traffic and learned limits make it longer. `ends_at`: seconds since the Unix epoch."""

    messages: int
    rate: Rate
    seconds: float  # until the last one leaves
    ends_at: float


def check_count(name: str, given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise BadInputError(f"{name} is {reprlib.repr(given)}: give how many, as a whole number")


def forecast(messages: int, rate: Rate, now: float) -> Forecast:
    seconds = seconds_to_send(messages, rate)
    return Forecast(messages=messages, rate=rate, seconds=round(seconds, 1), ends_at=now + seconds)


def seconds_to_send(messages: int, rate: Rate) -> float:
    """Return the seconds until the last of so many messages leaves; 0 if there is none."""
    return departure(messages - 1, rate) if messages > 0 else 0.0
