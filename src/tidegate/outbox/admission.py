"""Validation of messages before they are stored: bad input raises BadInputError and stores nothing."""

import datetime as dt
import difflib
import functools
import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, File, Message, Priority, TicketId
from tidegate.scrubber import scrub_secrets

MAX_TEXT: Final = 4096
MAX_PARAMS: Final = 1024 * 1024  # bytes of JSON, files apart
LARGEST_ID: Final = 2**53  # Telegram promises 52 bits
MAX_ATTEMPTS: Final = 1_000
_PLAIN_TYPES: Final = frozenset((str, int, float, bool, File))  # enough for almost every message
_NAME = re.compile(r"@[A-Za-z]\w{3,31}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,16}", re.ASCII)
_METHOD = re.compile(r"[a-z][A-Za-z]{2,63}")
_OPTIONS: Final = frozenset(Message.__struct_fields__) - {
    "id",
    "bot",
    "chat_id",
    "method",
    "params",
    "priority",
}
_OPTION_NAMES: Final = _OPTIONS | {"priority"}


def compose(ticket: TicketId, bot: BotId, fields: Mapping[str, Any], now: float) -> Message:
    """A message from a caller's fields: options of Tidegate by their names, all else is for Telegram."""
    params = dict(fields)
    method = check_method(params.pop("method", "sendMessage"))
    chat_id = check_chat(params.pop("chat_id", None))
    priority = check_priority(params.pop("priority", Priority.NORMAL))
    options = {name: params.pop(name) for name in _OPTIONS & params.keys()}
    for name in params:
        if isinstance(name, str):
            _check_name(name)
    params = {name: value for name, value in params.items() if value is not None}
    if not all(type(value) in _PLAIN_TYPES for value in params.values()):
        params = plain_value(params)
    _check_params(method, params)
    try:
        checked = msgspec.convert(
            {"id": ticket, "bot": bot, "chat_id": chat_id, "method": method, "params": {}, **options}, Message
        )
    except msgspec.ValidationError as error:
        raise BadInputError(f"{method} to {chat_id}: {error}") from error
    message = msgspec.structs.replace(checked, params=params, priority=priority)
    _check_options(message, now)
    return message


def check_options(names: Iterable[str]) -> None:
    """Raise BadInputError unless every name is an option of Tidegate."""
    for name in names:
        _check_name(name)
        if name not in _OPTION_NAMES:
            known = ", ".join(sorted(_OPTION_NAMES))
            raise BadInputError(f"{name!r} is no option of a queued call: choose from {known}")


@functools.lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    """Raise BadInputError for a misspelt option: Telegram would ignore it as an unknown parameter."""
    if name not in _OPTION_NAMES and (meant := difflib.get_close_matches(name, _OPTION_NAMES, 1, 0.9)):
        raise BadInputError(f"{name!r} is not known: {meant[0]!r} may be meant")


def check_method(method: object) -> str:
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise BadInputError(f"{method!r} is not a Bot API method: write its name, such as sendMessage")
    return method


def check_chat(chat_id: object) -> ChatId:
    """A number other than 0, as a number or in digits, or an @name."""
    if isinstance(chat_id, str):
        text = chat_id.strip()
        if _NAME.fullmatch(text):
            return text
        if _NUMBER.fullmatch(text):
            chat_id = int(text)
    if isinstance(chat_id, bool) or not isinstance(chat_id, int) or not 0 < abs(chat_id) < LARGEST_ID:
        given = reprlib.repr(scrub_secrets(chat_id) if isinstance(chat_id, str) else chat_id)
        raise BadInputError(f"chat_id {given} is no chat: give a number other than 0, or an @name")
    return chat_id


def check_priority(priority: object) -> Priority:
    try:
        return Priority(priority)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(Priority)
        raise BadInputError(f"priority {priority!r} is not known: choose one of {names}") from None


def _check_params(method: str, params: Mapping[str, Any]) -> None:
    if method == "sendMessage":
        text = params.get("text")
        if not isinstance(text, str) or not text.strip():
            raise BadInputError("text is empty: Telegram sends no empty messages")
        if len(text) > MAX_TEXT and "parse_mode" not in params:
            raise BadInputError(
                f"text has {len(text)} characters: Telegram takes at most {MAX_TEXT}; split it"
            )
    try:
        bare = _without_files(params)
        size = len(_encode(bare))
        _pack(bare)  # stores are stricter than JSON: integers of 64 bits, text that is valid UTF-8
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadInputError(f"the parameters of {method} cannot be sent as JSON: {error}") from error
    if size > MAX_PARAMS:
        raise BadInputError(
            f"the parameters of {method} have {size:,} bytes: at most {MAX_PARAMS:,} are taken"
        )


def _check_options(message: Message, now: float) -> None:
    for name in ("not_before", "expires_at", "dedup_for"):
        if not math.isfinite(getattr(message, name) or 0.0):
            raise BadInputError(f"{name} is no time: give seconds since the epoch, a finite number")
    for name in ("dedup_key", "coalesce_key"):
        _check_key(name, getattr(message, name))
    if message.expires_at is not None and message.expires_at <= now:
        raise BadInputError("expires_at is in the past: the message could never be sent")
    if message.not_before is not None and message.not_before >= (message.expires_at or math.inf):
        raise BadInputError("not_before is after expires_at: the message could never be sent")
    if not 1 <= message.max_attempts <= MAX_ATTEMPTS:
        raise BadInputError(f"max_attempts is {message.max_attempts}: give 1 to {MAX_ATTEMPTS}")
    if message.dedup_for <= 0:
        raise BadInputError("dedup_for is the seconds in which a dedup_key counts: give more than 0")


def _check_key(name: str, key: str | None) -> None:
    if key is None:
        return
    if not key:
        raise BadInputError(f"{name} is empty: leave it out, or every message with an empty one is the same")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{name} holds what is no text") from None


def _without_files(value: object) -> object:
    """Files are not part of the JSON; their content is checked when it is sent."""
    if isinstance(value, File):
        return None
    if isinstance(value, Mapping):
        return {name: _without_files(item) for name, item in value.items()}
    return [_without_files(item) for item in value] if isinstance(value, list | tuple) else value


def plain_value(value: object) -> Any:  # noqa: ANN401, PLR0911  (one line for each kind)
    """The value as JSON has it, with files. Raises BadInputError if that is not possible.

    Objects of bot libraries are known by what they can do, as none of the libraries need be installed.
    """
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str() | File():
            return value
        case Mapping():
            return {key: made for key, item in value.items() if (made := plain_value(item)) is not None}
        case list() | tuple():
            return [plain_value(item) for item in value]
        case dt.datetime():
            return round(value.timestamp())
    for method in ("to_dict", "model_dump"):  # python-telegram-bot's objects, and aiogram's
        if callable(dump := getattr(value, method, None)):
            return plain_value(dump())
    if type(value).__module__.partition(".")[0] == "aiogram" and type(value).__name__ == "Default":
        return None  # the bot's own default, which is not known here
    raise BadInputError(
        f"a {type(value).__name__} cannot be sent as JSON: give plain values, and files as tidegate.File"
    )


_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
