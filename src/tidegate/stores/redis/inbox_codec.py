"""Updates as the Lua scripts of the inbox read and write them."""

from typing import Any, Final, NamedTuple

import msgspec

from tidegate.inbound.inbox import ClaimedItem, InboxItem, InboxSource, ParkedItem

_BITS_PER_BITMAP: Final = 16  # of an update_id: those of one bitmap differ in so many
_LONGEST_NUMBER: Final = 18  # digits of a number that is shifted

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[InboxSource, str, str, bytes, float]).decode
_decode_reason: Final = msgspec.msgpack.Decoder(tuple[float, str]).decode


class SeenKey(NamedTuple):
    """The key that knows an arrival again, and its bit in there; none if the key is of this one alone."""

    key: str
    bit: str = ""


def seen_key(arrival: InboxItem) -> SeenKey:
    """A bot numbers its updates in a row: 65,536 of them are a bitmap of 8 KB, as keys they would be 6 MB.

    Whoever else uses numbers may choose them at random, and would get a bitmap for each.
    """
    name, key = f"inbox:seen:{without_separators(arrival.source)}", arrival.key
    if arrival.source.startswith("bot:") and len(key) <= _LONGEST_NUMBER and _is_number(key):
        return SeenKey(f"{name}:{int(key) >> _BITS_PER_BITMAP}", str(int(key) % (1 << _BITS_PER_BITMAP)))
    return SeenKey(f"{name}:={key}")


def _is_number(text: str) -> bool:
    """As we would write it: 007 is another one than 7."""
    return text.isascii() and text.isdigit() and str(int(text)) == text


def without_separators(text: str) -> str:
    """What parts one from the other in Redis must not be in them."""
    return text.replace("\0", "\1").replace("\n", "\1")


def lane_prefix(arrival: InboxItem) -> str:
    return f"{without_separators(arrival.source)}\0{without_separators(arrival.lane)}\0"


def place_and_token(held: ClaimedItem) -> tuple[str, str]:
    """Where it stands, and the token under which this process holds it."""
    number, _, token = held.id.partition("/")
    return lane_prefix(held.item) + number, token


def encode_update(arrival: InboxItem, arrived_at: float) -> bytes:
    return _encode((arrival.source, arrival.key, arrival.lane, arrival.body, arrived_at))


def decode_held(told: list[Any], token: str) -> ClaimedItem:
    number, attempts, crashes, body = told
    arrival, arrived_at = _decode_update(body)
    return ClaimedItem(f"{number.decode()}/{token}", arrival, arrived_at, attempts, crashes)


def encode_reason(parked_at: float, reason: str) -> bytes:
    return _encode((parked_at, reason))


def decode_parked(body: bytes, reason: bytes) -> ParkedItem:
    return ParkedItem(*_decode_update(body), *_decode_reason(reason))


def _decode_update(body: bytes) -> tuple[InboxItem, float]:
    source, key, lane, content, arrived_at = _decode(body)
    return InboxItem(source, key, lane, content), arrived_at
