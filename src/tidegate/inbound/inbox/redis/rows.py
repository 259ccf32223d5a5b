"""How arrivals are written in Redis: their places in line, their bodies, and what knows them again."""

from typing import Any, Final, NamedTuple

import msgspec

from tidegate.inbound.arrivals import Arrival, Held, Parked, Source

_BITS: Final = 16  # of an update_id: those of one bitmap differ in so many
_LONGEST: Final = 18  # digits of a number that is shifted

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[Source, str, str, bytes, float]).decode
_decode_reason: Final = msgspec.msgpack.Decoder(tuple[float, str]).decode


class Memory(NamedTuple):
    """The key that knows an arrival again, and its bit in there; none if the key is of this one alone."""

    key: str
    bit: str = ""


def memory_of(arrival: Arrival) -> Memory:
    """A bot numbers its updates in a row: 65,536 of them are a bitmap of 8 KB, as keys they would be 6 MB.

    Whoever else uses numbers may choose them at random, and would get a bitmap for each.
    """
    name, key = f"inbox:seen:{clean(arrival.source)}", arrival.key
    if arrival.source.startswith("bot:") and len(key) <= _LONGEST and _is_number(key):
        return Memory(f"{name}:{int(key) >> _BITS}", str(int(key) % (1 << _BITS)))
    return Memory(f"{name}:={key}")


def _is_number(text: str) -> bool:
    """As we would write it: 007 is another one than 7."""
    return text.isascii() and text.isdigit() and str(int(text)) == text


def clean(text: str) -> str:
    """What parts one from the other in Redis must not be in them."""
    return text.replace("\0", "\1").replace("\n", "\1")


def line_of(arrival: Arrival) -> str:
    return f"{clean(arrival.source)}\0{clean(arrival.lane)}\0"


def place_of(held: Held) -> tuple[str, str]:
    """Where it stands, and the token under which this process holds it."""
    number, _, token = held.id.partition("/")
    return line_of(held.arrival) + number, token


def body_of(arrival: Arrival, arrived_at: float) -> bytes:
    return _encode((arrival.source, arrival.key, arrival.lane, arrival.body, arrived_at))


def held_of(told: list[Any], token: str) -> Held:
    number, attempts, crashes, body = told
    arrival, arrived_at = _read(body)
    return Held(f"{number.decode()}/{token}", arrival, arrived_at, attempts, crashes)


def reason_of(parked_at: float, reason: str) -> bytes:
    return _encode((parked_at, reason))


def parked_of(body: bytes, reason: bytes) -> Parked:
    return Parked(*_read(body), *_decode_reason(reason))


def _read(body: bytes) -> tuple[Arrival, float]:
    source, key, lane, content, arrived_at = _decode(body)
    return Arrival(source, key, lane, content), arrived_at
