"""Messages as rows of the file, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId, ChatId, File, Message, Priority, Record, State
from tidegate.pacing.rules import Family, cost_of, family_of

PRIORITIES: Final = tuple(Priority)
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_FILE: Final = 1  # the extension type of a file within parameters


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


def pack(message: Message) -> bytes:
    params = message.params
    if not _FLAT.issuperset(map(type, params.values())):  # else there is no file in it
        message = msgspec.structs.replace(message, params=_with_files_packed(params))
    return _encode(message)


def unpack(body: bytes) -> Message:
    return _decoder.decode(body)


def pack_result(result: object) -> bytearray | None:
    return None if result is None else bytearray(_encode(result))  # which sqlite3 binds faster than bytes


def _with_files_packed(value: Any) -> Any:  # noqa: ANN401  (as JSON)
    """A file is an extension type: as a plain structure it would come back as a dictionary."""
    if isinstance(value, File):
        if value.path is not None:  # whoever sends it may work in another folder
            value = msgspec.structs.replace(value, path=str(Path(value.path).absolute()))
        return msgspec.msgpack.Ext(_FILE, _encode(value))
    if isinstance(value, Mapping):
        return {name: _with_files_packed(item) for name, item in value.items()}
    return [_with_files_packed(item) for item in value] if isinstance(value, list | tuple) else value


def _file(code: int, data: memoryview) -> File:
    if code != _FILE:
        raise ValueError(f"extension type {code} is not known")
    return msgspec.msgpack.decode(data, type=File)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Message, ext_hook=_file)
