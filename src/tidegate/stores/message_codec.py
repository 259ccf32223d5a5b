"""Messages as bytes, for stores outside of this process, and back.

Stored bytes may be damaged, or of another version. Reading them never raises: one bad row must not stop the
others. `read_body` returns the message or an `UnreadableBody`, which its store settles as dead with the
reason `UNREADABLE`; the bytes stay in the store for the operator.
"""

import logging
import math
from typing import Any, Final

import msgspec

from tidegate.file_codec import unpack_file, with_files_packed
from tidegate.model import BotId, ChatId, Message, Priority, TicketId
from tidegate.outbox.admission import check_method
from tidegate.outbox.transitions import UNREADABLE

log = logging.getLogger("tidegate.store")

DEEPEST_PARAMS: Final = 100  # levels; messages of earlier versions may be deeper than new ones
LONGEST_CAUSE: Final = 200  # characters of a decoder's text that are kept
_FLAT: Final = frozenset({str, int, float, bool, type(None)})
# Whatever encoders and decoders raise for values that they do not take.
CODEC_ERRORS: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)

_said: Final[set[type[Exception]]] = set()


class UnreadableBody(msgspec.Struct, frozen=True):
    """A stored body that cannot be decoded."""

    size: int  # bytes
    cause: str

    @property
    def description(self) -> str:
        return f"its body of {self.size} bytes cannot be decoded: {self.cause}"


def pack(message: Message) -> bytes:
    params = message.params
    if not _FLAT.issuperset(map(type, params.values())):  # else there is no file in it
        message = msgspec.structs.replace(message, params=with_files_packed(params))
    return encode(message)


def unpack(body: bytes) -> Message:
    return _decoder.decode(body)


def read_body(
    body: bytes,
    ticket: TicketId | None = None,
    bot: BotId | None = None,
    chat_id: ChatId | None = None,
) -> Message | UnreadableBody:
    """Decode a stored body. Never raises.

    Give what the store itself knows of the message: a body that names another one is damaged, too.
    """
    try:
        message = unpack(body)
        _check_plausible(message)
    except CODEC_ERRORS as error:
        return UnreadableBody(len(body), str(error)[:LONGEST_CAUSE] or type(error).__name__)
    for name, known in (("id", ticket), ("bot", bot), ("chat_id", chat_id)):
        if known is not None and known != getattr(message, name):
            return UnreadableBody(len(body), f"its {name} is not that of its row")
    return message


def stand_in(ticket: TicketId, bot: BotId, chat_id: ChatId, priority: Priority = Priority.NORMAL) -> Message:
    """A message in place of one that cannot be decoded, from what its store knows. It has no method."""
    return Message(id=ticket, bot=bot, chat_id=chat_id, method="", params={}, priority=priority)


def report_unreadable(ticket: str, bot: object, chat_id: object, body: UnreadableBody) -> None:
    """Log that a message is dead because it cannot be decoded. Once a message: when it is settled."""
    log.error(
        "message %s of bot %s to chat %s is dead (%s): %s. Its bytes are kept until it is dropped",
        ticket,
        bot,
        chat_id,
        UNREADABLE,
        body.description,
    )


def encode_result(result: object) -> bytes | None:
    """Telegram's result as bytes; None if it has no result, or one that cannot be kept. Never raises."""
    if result is None:
        return None
    try:
        return encode(result)
    except CODEC_ERRORS as error:
        _say_once(error)
        return None


def decode_result(raw: bytes | None) -> Any:  # noqa: ANN401  (Telegram's)
    """The reverse of `encode_result`; None for bytes that cannot be decoded. Never raises."""
    try:
        return None if raw is None else msgspec.msgpack.decode(raw)
    except CODEC_ERRORS:
        return None


def storable_text(text: str | None) -> str | None:
    """A text from outside (an error, an answer) as a store can keep it: lone surrogates become "?"."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()


def _say_once(error: Exception) -> None:
    """Log it once for each kind of error: a proxy's bug is in every answer."""
    if type(error) not in _said:
        _said.add(type(error))
        cause = str(error)[:LONGEST_CAUSE]
        log.error("a result of Telegram cannot be kept, and is kept as null: %s. This is logged once", cause)


def _check_plausible(message: Message) -> None:
    """Raise ValueError for values that pass as their types, and that no message was put with."""
    check_method(message.method)
    if not _FLAT.issuperset(map(type, message.params.values())):
        _check_nested(message.params, 0)
    for name in ("not_before", "expires_at", "dedup_for"):
        if not math.isfinite(getattr(message, name) or 0.0):
            raise ValueError(f"{name} is no time")


def _check_nested(value: object, depth: int) -> None:
    if depth > DEEPEST_PARAMS:
        raise ValueError("its parameters are nested too deeply")
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in _FLAT:
                raise ValueError(f"a key of its parameters is of type {type(key).__name__}")
            _check_nested(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_nested(item, depth + 1)


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Message, ext_hook=unpack_file)
