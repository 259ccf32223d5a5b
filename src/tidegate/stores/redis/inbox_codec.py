"""Updates as the Lua scripts of the inbox read and write them."""

from typing import Any, Final, NamedTuple

import msgspec

from tidegate.inbound.inbox import UNREADABLE, ClaimedItem, InboxItem, InboxSource, ParkedItem

_BITMAP_BITS: Final = 16  # the lowest bits of an update_id, in which those of one bitmap differ
_LONGEST_NUMBER: Final = 18  # digits

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[InboxSource, str, str, bytes, float]).decode
_decode_reason: Final = msgspec.msgpack.Decoder(tuple[float, str]).decode


class SeenKey(NamedTuple):
    """The key that recognises an update, and its bit in there; empty if the key is of this one alone."""

    key: str
    bit: str = ""


def seen_key(item: InboxItem) -> SeenKey:
    """A bot numbers its updates in a row: 65,536 of them are a bitmap of 8 KB, as keys they would be 6 MB.

    Other sources may choose their numbers at random, and would get a bitmap for each.
    """
    name, key = f"inbox:seen:{without_separators(item.source)}", item.key
    if item.source.startswith("bot:") and len(key) <= _LONGEST_NUMBER and _is_number(key):
        return SeenKey(f"{name}:{int(key) >> _BITMAP_BITS}", str(int(key) % (1 << _BITMAP_BITS)))
    return SeenKey(f"{name}:={key}")


def _is_number(text: str) -> bool:
    """Leading zeros are not allowed: 007 is another key than 7."""
    return text.isascii() and text.isdigit() and str(int(text)) == text


def without_separators(text: str) -> str:
    """Replace the characters that separate the parts of a key in Redis."""
    return text.replace("\0", "\1").replace("\n", "\1")


def lane_prefix(item: InboxItem) -> str:
    return f"{without_separators(item.source)}\0{without_separators(item.lane)}\0"


def place_and_token(claimed: ClaimedItem) -> tuple[str, str]:
    """Return its place in the queue, and the token of the claim."""
    number, _, token = claimed.id.partition("/")
    return lane_prefix(claimed.item) + number, token


def encode_update(item: InboxItem, arrived_at: float) -> bytes:
    return _encode((item.source, item.key, item.lane, item.body, arrived_at))


class UnreadableUpdate(NamedTuple):
    """A claimed update whose bytes cannot be decoded. `key` names it in place of its own."""

    place: bytes
    key: str
    why: str


def decode_claimed(row: list[Any], token: str) -> ClaimedItem | UnreadableUpdate:
    number, attempts, crashes, body, place = row
    try:
        item, arrived_at = _decode_update(body)
        if (lane_prefix(item) + number.decode()).encode() != place:
            raise ValueError("it names another lane than the one in which it stood")  # noqa: TRY301
    except ValueError as error:
        return UnreadableUpdate(place, f"{UNREADABLE}-{number.decode()}", unreadable_reason(error))
    return ClaimedItem(f"{number.decode()}/{token}", item, arrived_at, attempts, crashes)


def unreadable_reason(error: Exception) -> str:
    return f"{UNREADABLE}: {error}"


def encode_reason(parked_at: float, reason: str) -> bytes:
    return _encode((parked_at, reason))


def decode_parked(body: bytes, reason: bytes, name: bytes) -> ParkedItem:
    """One that cannot be decoded is known by its name; its bytes are the body."""
    # Split from the left: a key may hold a zero byte.
    source, _, _, key = name.decode(errors="replace").split("\0", 3)
    try:
        parked_at, why = _decode_reason(reason)
    except ValueError as error:
        parked_at, why = 0.0, unreadable_reason(error)
    try:
        item, arrived_at = _decode_update(body)
        if (without_separators(item.source), item.key) != (source, key):
            raise ValueError("it names another source or key than the one under which it is parked")  # noqa: TRY301
    except ValueError as error:
        if not why.startswith(UNREADABLE):
            why = f"{unreadable_reason(error)}; it was parked before: {why}"
        item, arrived_at = InboxItem(InboxSource(source), key, "", body), parked_at
    return ParkedItem(item, arrived_at, parked_at, why)


def _decode_update(body: bytes) -> tuple[InboxItem, float]:
    source, key, lane, content, arrived_at = _decode(body)
    return InboxItem(source, key, lane, content), arrived_at
