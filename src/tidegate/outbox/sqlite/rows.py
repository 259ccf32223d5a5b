"""Messages as rows of the file, and back."""

from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId, ChatId, Message, Priority, Record, State
from tidegate.outbox.packing import encode, unpack
from tidegate.pacing.rules import Family, cost_of, family_of

PRIORITIES: Final = tuple(Priority)


class Place(NamedTuple):
    """What the schedule has to know of a message that waits: the first columns of its row."""

    seq: int
    bot: BotId
    chat_id: ChatId
    family: Family
    priority: int
    urgent: int
    cost: int
    paid: int
    created_at: float
    not_before: float | None
    expires_at: float | None
    retry_at: float | None
    attempts: int
    crashes: int


PLACE: Final = ", ".join(Place._fields)
RECORD: Final = (
    "body, state, created_at, attempts, crashes, settled_at, reason, description, result, expires_at"
)


def place_of(message: Message, seq: int, now: float) -> Place:
    method, params = message.method, message.params
    family = family_of(method)
    # Through `_make`, which is in C: this is done for every message.
    return Place._make(
        (
            seq,
            message.bot,
            message.chat_id,
            family,
            PRIORITIES.index(message.priority),
            1 if message.urgent else 0,
            0 if family == "free" else cost_of(method, params),
            1 if params.get("allow_paid_broadcast") else 0,
            now,
            message.not_before,
            message.expires_at,
            None,
            0,
            0,
        )
    )


def record_of(row: tuple[Any, ...], now: float) -> Record:
    """From the columns of `RECORD`. What is past its deadline has expired, written down or not."""
    body, state, created_at, attempts, crashes, settled_at, reason, description, result, expires_at = row
    if expires_at is not None and expires_at <= now and state in {State.QUEUED, State.RETRY}:
        state, settled_at = State.EXPIRED, expires_at
    return Record(
        message=unpack(body),
        state=State(state),
        created_at=created_at,
        attempts=attempts,
        crashes=crashes,
        settled_at=settled_at,
        reason=reason,
        description=description,
        result=None if result is None else msgspec.msgpack.decode(result),
    )


def pack_result(result: object) -> bytearray | None:
    return None if result is None else bytearray(encode(result))  # which sqlite3 binds faster than bytes
