"""Validation of messages before they are stored: bad input raises BadInputError and stores nothing."""

import datetime as dt
import difflib
import functools
import math
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, File, Message, Priority, TicketId
from tidegate.outbox.bot_api_methods import PARAMETERS
from tidegate.outbox.message_times import TIME_OPTIONS, absolute_times, check_times
from tidegate.scrubber import scrub_secrets

MAX_TEXT: Final = 4096
MAX_PARAMS: Final = 1024 * 1024  # bytes of JSON, files apart
BYTES_OF_CHARACTER: Final = 6  # at most, in JSON: \u0001
LONGEST_NUMBER: Final = 25  # characters, in JSON, with what stands around it
LARGEST_ID: Final = 2**53  # Telegram promises 52 bits
MOST_ATTEMPTS: Final = 1_000
MAX_DEPTH: Final = 32  # levels of lists and objects within a parameter; Telegram's own have fewer than ten
LONGEST_NAME: Final = 128  # characters of a parameter's name
LONGEST_PLACE: Final = 80  # characters shown of where a value is
METHODS_REMEMBERED: Final = 256  # with their parameters; Telegram has fewer than 200
_INT64: Final = range(-(2**63), 2**64)  # what stores can keep
_NAME = re.compile(r"@[A-Za-z]\w{3,31}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,16}", re.ASCII)
_METHOD = re.compile(r"[a-z][A-Za-z]{2,63}")
_NO_OPTIONS: Final = ("id", "bot", "chat_id", "method", "params", "priority")
_OPTIONS: Final = frozenset(Message.__struct_fields__).difference(_NO_OPTIONS) | TIME_OPTIONS
_QUEUE_OPTIONS: Final = _OPTIONS | {"priority"}
OPTION_NAMES: Final = _QUEUE_OPTIONS | {"extra"}  # fields of a message that are not for Telegram
_FIELD_NAMES: Final = OPTION_NAMES | {"chat_id", "method"}
WAY_OUT: Final = 'it in extra: {{"{}": …}}'
_OPTION_KINDS: Final = {
    "urgent": "true or false",
    "dedup_key": "a text",
    "coalesce_key": "a text",
    "max_attempts": f"a whole number from 1 to {MOST_ATTEMPTS}",
    "on_unknown": "resend or park",
}
OPTIONS_BY_OTHER_NAMES: Final = {  # as Celery, arq and APScheduler call them
    "eta": "not_before",
    "defer_until": "not_before",
    "run_date": "not_before",
    "when": "not_before",
    "countdown": "delay",
    "defer_by": "delay",
    "expires": "expires_at",
    "task_id": "dedup_key",
    "job_id": "dedup_key",
    "max_retries": "max_attempts",
}
# They take the bot or its updates away from whoever runs it, or answer with a token, which would be stored.
NOT_QUEUED: Final = frozenset(
    (
        *("close", "deleteWebhook", "getManagedBotToken", "getUpdates"),
        *("logOut", "replaceManagedBotToken", "setWebhook"),
    )
)


def compose(ticket: TicketId, bot: BotId, fields: Mapping[str, Any], now: float) -> Message:
    """A message from a caller's fields: options of Tidegate by their names, all else is for Telegram."""
    params = dict(fields)
    _check_names(params)
    method = check_method(params.pop("method", "sendMessage"))
    if method in NOT_QUEUED:
        raise BadInputError(f"{method} is about the bot itself, and is not queued: call it directly")
    chat_id = check_chat(params.pop("chat_id", None))
    priority = check_priority(params.pop("priority", Priority.NORMAL))
    extra = params.pop("extra", None)
    options = {name: params.pop(name) for name in list(params) if name in _OPTIONS}
    if not TIME_OPTIONS.isdisjoint(options):
        options = absolute_times(options, now)
    check_fields(method, params)
    params = _plain_params(params)
    if extra is not None:
        params |= _extra_params(extra)
    _check_text(method, params)
    _check_size(method, params)
    if not options:  # as with most messages: there is nothing more to check
        return Message(id=ticket, bot=bot, chat_id=chat_id, method=method, params=params, priority=priority)
    try:
        checked = msgspec.convert(
            {"id": ticket, "bot": bot, "chat_id": chat_id, "method": method, "params": {}, **options}, Message
        )
    except msgspec.ValidationError as error:
        name = str(error).rpartition("`$.")[2].rstrip("`")
        if name not in _OPTION_KINDS:  # times are checked already
            raise BadInputError(f"{method} to {chat_id}: {error}") from error
        kind = _OPTION_KINDS[name]
        raise BadInputError(f"{name} {_shown(options[name])} is not possible: give {kind}") from error
    message = msgspec.structs.replace(checked, params=params, priority=priority)
    _check_options(message, now)
    return message


def check_call(method: str, params: object, extra: object = None) -> dict[str, Any]:
    """The parameters of a direct call as JSON has them, with files. Raises BadInputError."""
    if not isinstance(params, Mapping):
        kind = type(params).__name__
        raise BadInputError(f"the parameters of a call are a mapping, such as {{'chat_id': 1}}: got {kind}")
    _check_names(params)
    check_parameters(method, params)
    return _plain_params(params) | ({} if extra is None else _extra_params(extra))


def library_fields(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a call of a bot library. A newer library has parameters that are not known here."""
    known = _parameters_of(method)
    if known is None or params.keys() <= known:
        return {"method": method, **params}
    newer = {name: value for name, value in params.items() if name not in known}
    return {"method": method, "extra": newer, **{name: params[name] for name in params if name in known}}


def check_options(names: Iterable[str]) -> None:
    """Raise BadInputError unless every name is an option of Tidegate."""
    for name in names:
        _check_name(name)
        if name not in _QUEUE_OPTIONS:
            known = ", ".join(sorted(_QUEUE_OPTIONS))
            raise BadInputError(f"{name!r} is no option of a queued call: choose from {known}")


def _check_names(params: Mapping[Any, Any]) -> None:
    """Raise BadInputError for a name of a parameter that is no text, or too long to be one of Telegram's."""
    for name in params:
        if type(name) is str and name.isascii() and len(name) <= LONGEST_NAME:  # as most are
            continue
        _check_key_of("the message", name)
        if len(name) > LONGEST_NAME:
            raise BadInputError(f"{_shown(name)} is no parameter: its name has {len(name)} characters")


def check_fields(method: str, fields: Mapping[str, Any], way_out: str = WAY_OUT) -> None:
    """Raise BadInputError for a field that is no parameter of the method: Telegram would ignore it.

    The nearest parameter or option of Tidegate is named. Of a method that is not known here, every parameter
    is passed on, unless it looks like a misspelt option. `way_out` says how to send it nevertheless.
    """
    if _parameters_of(method) is None:
        for name in fields:
            _check_name(name)
    else:
        check_parameters(method, fields, _FIELD_NAMES, way_out)


def check_parameters(
    method: str, params: Mapping[str, Any], others: frozenset[str] = frozenset(), way_out: str = WAY_OUT
) -> None:
    """Raise BadInputError for a parameter that the method does not have; `others` may be meant as well."""
    known = _parameters_of(method)
    if known is None or params.keys() <= known:
        return
    name = next(name for name in params if name not in known)
    meant = _meant(name, known | others)
    hint = f"{meant!r} may be meant" if meant else "see the parameters in Telegram's documentation"
    raise BadInputError(
        f"{name!r} is no parameter of {method}: {hint}; to send it as it is, give {way_out.format(name)}"
    )


def _meant(name: str, known: frozenset[str]) -> str | None:
    """Return the nearest known name, or the one for what other libraries call so."""
    if name == "text":  # the nearest by letters would be `extra`
        return "caption" if "caption" in known else None
    other = OPTIONS_BY_OTHER_NAMES.get(name.lstrip("_"))
    if other in known:
        return other
    near = difflib.get_close_matches(name, known, 1)
    return near[0] if near else None


@functools.lru_cache(METHODS_REMEMBERED)
def _parameters_of(method: str) -> frozenset[str] | None:
    known = PARAMETERS.get(method)
    return None if known is None else frozenset(known.split())


def _extra_params(extra: object) -> dict[str, Any]:
    """The parameters that are sent as they are, whether they are known here or not."""
    if not isinstance(extra, Mapping):
        raise BadInputError(f"extra is a mapping of parameters: got {type(extra).__name__}")
    _check_names(extra)
    for name in ("chat_id", "method"):
        if name in extra:
            raise BadInputError(f"{name} is not given in extra: give it as a field of its own")
    return _plain_params(extra)


@functools.lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    """Raise BadInputError for a misspelt option: Telegram would ignore it as an unknown parameter."""
    if name not in OPTION_NAMES and (meant := difflib.get_close_matches(name, OPTION_NAMES, 1, 0.9)):
        raise BadInputError(f"{name!r} is not known: {meant[0]!r} may be meant")


def check_method(method: object) -> str:
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise BadInputError(f"{_shown(method)} is not a Bot API method: write its name, such as sendMessage")
    return method


def check_chat(chat_id: object) -> ChatId:
    """A number other than 0, as a number or in digits, or an @name."""
    if type(chat_id) is int and 0 < abs(chat_id) < LARGEST_ID:  # as most are
        return chat_id
    if isinstance(chat_id, str):
        text = chat_id.strip()
        if _NAME.fullmatch(text):
            return text
        if _NUMBER.fullmatch(text):
            chat_id = int(text)
    if chat_id is None:
        raise BadInputError("chat_id is missing: give a number other than 0, or an @name")
    if isinstance(chat_id, bool) or not isinstance(chat_id, int) or not 0 < abs(chat_id) < LARGEST_ID:
        raise BadInputError(f"chat_id {_shown(chat_id)} is no chat: give a number other than 0, or an @name")
    return chat_id


def check_priority(priority: object) -> Priority:
    if type(priority) is Priority:
        return priority
    try:
        return Priority(priority)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(Priority)
        raise BadInputError(f"priority {_shown(priority)} is not known: choose one of {names}") from None


def _check_text(method: str, params: Mapping[str, Any]) -> None:
    if method != "sendMessage":
        return
    text = params.get("text")
    if text is not None and not isinstance(text, str):
        raise BadInputError('text must be a string, such as "Hi"')
    if text is None or not text.strip():
        raise BadInputError("text is empty: Telegram sends no empty messages")
    if len(text) > MAX_TEXT and "parse_mode" not in params:
        raise BadInputError(f"text has {len(text)} characters: Telegram takes at most {MAX_TEXT}; split it")


def _check_size(method: str, params: Mapping[str, Any]) -> None:
    if _is_surely_small(params):
        return
    try:
        size = len(_encode(_without_files(params)))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise BadInputError(f"the parameters of {method} cannot be sent as JSON: {error}") from error
    if size > MAX_PARAMS:
        raise BadInputError(
            f"the parameters of {method} have {size:,} bytes: at most {MAX_PARAMS:,} are taken"
        )


def _is_surely_small(params: Mapping[str, Any]) -> bool:
    """Return True if that is certain without writing the parameters as JSON, which takes longer."""
    characters = 0
    for name, value in params.items():
        kind = type(value)
        if kind is str:
            characters += len(value)
        elif kind is not int and kind is not bool and kind is not float:
            return False
        characters += len(name) + LONGEST_NUMBER
    return characters * BYTES_OF_CHARACTER < MAX_PARAMS


def _check_options(message: Message, now: float) -> None:
    for name in ("dedup_key", "coalesce_key"):
        _check_key(name, getattr(message, name))
    check_times(message.not_before, message.expires_at, now)
    if message.max_attempts is not None and not 1 <= message.max_attempts <= MOST_ATTEMPTS:
        raise BadInputError(f"max_attempts is {message.max_attempts}: give 1 to {MOST_ATTEMPTS}")
    if message.dedup_for <= 0:
        raise BadInputError("dedup_for is the seconds in which a dedup_key counts: give more than 0")


def _check_key(name: str, key: str | None) -> None:
    if key is None:
        return
    if not key:
        raise BadInputError(f"{name} is empty: leave it out, or every message with an empty one is the same")
    if "\0" in key:  # SQLite compares texts only up to it
        raise BadInputError(f"{name} holds a NUL character: leave it out")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{name} holds what is no text") from None


def _without_files(value: object) -> object:
    """Return plain values without their files: those are not part of the JSON, and checked when sent."""
    if isinstance(value, dict):
        return {name: _without_files(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_files(item) for item in value]
    return None if isinstance(value, File) else value


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: made for name, value in params.items() if (made := plain_value(value, name)) is not None}


def plain_value(value: object, place: str = "a value", depth: int = 0) -> Any:  # noqa: ANN401, PLR0911, C901  (one line for each kind)
    """The value as JSON and every store have it, with files. Raises BadInputError if that is not possible.

    `place` names it in errors. Objects of bot libraries are known by what they can do, as none of the
    libraries need be installed.
    """
    if depth > MAX_DEPTH:
        raise BadInputError(
            f"{_short(place)} is nested more than {MAX_DEPTH} levels deep, or contains itself: flatten it"
        )
    if type(value) is str and value.isascii():  # as most are
        return value
    match value:
        case Enum():
            return plain_value(value.value, place, depth + 1)
        case None | bool():
            return value
        case str():
            return _plain_text(place, value)
        case int():
            return _plain_int(place, value)
        case float():
            return _plain_float(place, value)
        case File():
            return _plain_file(place, value)
        case Mapping():
            return _plain_mapping(place, value, depth)
        case list() | tuple():
            return [plain_value(item, f"{place}[{at}]", depth + 1) for at, item in enumerate(value)]
        case dt.datetime():
            return _plain_time(place, value)
    if type(value).__module__.partition(".")[0] == "aiogram" and type(value).__name__ == "Default":
        return None  # the bot's own default, which is not known here
    return plain_value(_dumped(place, value), place, depth + 1)


def _plain_text(place: str, text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadInputError(
                f"{_short(place)} is no valid text and cannot be sent as JSON: {_surrogate(text, error)}"
            ) from None
    return text


def _surrogate(text: str, error: UnicodeEncodeError) -> str:
    return f"character {error.start} is {text[error.start]!a}, half of a character; remove it"


def _plain_int(place: str, number: int) -> int:
    if number not in _INT64:
        raise BadInputError(
            f"{_short(place)} cannot be sent as JSON: the number has more than 64 bits; give it as text"
        )
    return number


def _plain_float(place: str, number: float) -> float:
    if not math.isfinite(number):
        raise BadInputError(
            f"{_short(place)} is {number}, which cannot be sent as JSON: give a finite number or leave it out"
        )
    return number


def _plain_mapping(place: str, mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in mapping.items():
        _check_key_of(place, key)
        made = plain_value(item, f"{place}.{key}", depth + 1)
        if made is not None:
            plain[key] = made
    return plain


def _check_key_of(place: str, key: object) -> None:
    if type(key) is str and key.isascii():  # as most are
        return
    if not isinstance(key, str):
        kind = type(key).__name__
        raise BadInputError(
            f"{_short(place)} has the key {_shown(key)} of type {kind}: keys are texts; give it as a str"
        )
    _plain_text(f"a key of {place}", key)


def _plain_file(place: str, file: File) -> File:
    """A file with values of the right types: stores could not read others back."""
    given: tuple[object, object, object] = (file.path, file.content, file.name)  # which nobody has checked
    path, content, name = given
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(content, bytearray | memoryview):
        content = bytes(content)
    if not isinstance(path, str | None) or not isinstance(name, str | None):
        raise BadInputError(f"{_short(place)}: the path and the name of a File are texts")
    if not isinstance(content, bytes | None):
        kind = type(content).__name__
        raise BadInputError(f"{_short(place)}: the content of a File is bytes, not of type {kind}")
    for text in (path, name):
        _plain_text(place, text or "")
    if path is not None and not PurePath(path).name:  # stores would keep the folder in which the process runs
        raise BadInputError(f"{_short(place)}: the path {_shown(path)} of a File names no file")
    return File(path=path, content=content, name=name)


def _plain_time(place: str, time: dt.datetime) -> int:
    try:
        return round(time.timestamp())
    except (ValueError, OverflowError, OSError):
        raise BadInputError(f"{_short(place)} is no time that Telegram could know: {time}") from None


def _dumped(place: str, value: object) -> object:
    """The fields of an object of a bot library."""
    for method in ("to_dict", "model_dump"):  # python-telegram-bot's objects, and aiogram's
        if callable(dump := getattr(value, method, None)):
            try:
                return dump()
            except Exception as error:
                failure = f"{type(value).__name__}.{method} failed: {scrub_secrets(str(error))}"
                raise BadInputError(f"{_short(place)} cannot be sent as JSON: {failure}") from error
    raise BadInputError(
        f"{_short(place)}: a {type(value).__name__} cannot be sent as JSON: give plain values, and files as"
        " tidegate.File"
    )


def _short(place: str) -> str:
    place = scrub_secrets(place)
    return place if len(place) <= LONGEST_PLACE else f"{place[:LONGEST_PLACE]}…"


def _shown(value: object) -> str:
    """A short repr, for errors. It never fails: a repr may, and one of a number with too many digits does."""
    try:
        return reprlib.repr(scrub_secrets(value) if isinstance(value, str) else value)
    except Exception:  # noqa: BLE001  (of any object)
        return f"of type {type(value).__name__}"


_encode = msgspec.json.Encoder().encode
