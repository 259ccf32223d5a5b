"""From what was written on the command line to the fields of a message."""

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.cli.times import duration
from tidegate.errors import BadInputError
from tidegate.model import File

# They have options of their own, and stand for one thing only.
_OURS: Final = {
    "chat_id": "write the chat as CHAT",
    "bot": "use --bot",
    "method": "use --method",
    "priority": "use --priority",
    "dedup_key": "use --dedup-key",
    "not_before": "use --at or --in",
}
CAPTIONED: Final = {
    "sendPhoto",
    "sendDocument",
    "sendVideo",
    "sendAnimation",
    "sendAudio",
    "sendVoice",
    "sendPaidMedia",
    "copyMessage",
    "editMessageCaption",
}
DEEPEST: Final = 100  # Telegram nests a handful of levels
_GROUP = re.compile(r" -\d+")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,3})?")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """As it was written."""

    chat: str
    text: str | None = None
    method: str | None = None
    params: list[str] = []
    photo: str | None = None
    document: str | None = None
    at: str | None = None
    delay: str | None = None


def fields_of(wanted: Wanted, now: float) -> dict[str, Any]:
    """What `Tidegate.send` takes. Raises BadInputError that names the option."""
    fields: dict[str, Any] = {"chat_id": wanted.chat.strip(), "method": wanted.method or "sendMessage"}
    params = dict(map(parameter, wanted.params))
    fields |= params
    if wanted.photo is not None and wanted.document is not None:
        raise BadInputError("--photo and --document are two messages: send them one after the other")
    for kind, given in (("photo", wanted.photo), ("document", wanted.document)):
        if given is not None:
            if wanted.method is not None:
                raise BadInputError(f"--{kind} says which method it is: leave --method out")
            fields |= {"method": f"send{kind.title()}", kind: file_or_id(given, f"--{kind}")}
    _check_text(wanted, fields["method"], params)
    if wanted.text is not None:
        fields[_place_of_text(fields["method"])] = text_of(wanted.text)
    not_before = moment_of(wanted, now)
    return fields if not_before is None else fields | {"not_before": not_before}


def _check_text(wanted: Wanted, method: str, params: Mapping[str, Any]) -> None:
    place = _place_of_text(method)
    if place in params:
        raise BadInputError(f"--param: {place} is not given this way: write it as TEXT")
    if method == "sendMessage" and wanted.text is None:
        raise BadInputError("there is nothing to send: give TEXT, --photo or --document")


def parameter(text: str) -> tuple[str, Any]:
    """`name=value`; the value is what it is as JSON, or else a text."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise BadInputError(f"--param: {text!r} has no name: write name=value, such as parse_mode=HTML")
    if name in _OURS:
        raise BadInputError(f"--param: {name} is not given this way: {_OURS[name]}")
    try:
        known = json.loads(value, parse_constant=_no_constant, parse_float=_number)
        _check_depth(known, DEEPEST)
    except ValueError:
        return name, value
    except RecursionError:
        raise BadInputError(f"--param: the value of {name} is nested too deeply") from None
    return name, known


def _check_depth(value: object, left: int) -> None:
    if not left:
        raise RecursionError
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _check_depth(item, left - 1)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)  # 1e999 is as little a number as Infinity
    return number


def _no_constant(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity are no JSON: they are texts


def file_or_id(given: str, option: str) -> File | str:
    """A file here, by its whole path: the worker may run elsewhere. What is none is Telegram's to know."""
    path = _path_of(given, option)
    if _holds(path.is_file):
        return File(path=str(path.absolute()))
    if _holds(path.is_dir) or not given.strip():
        raise BadInputError(f"{option}: {given!r} is no file: give the path of one, a file_id or an address")
    looks_like_a_path = path.suffix or len(path.parts) > 1
    if looks_like_a_path and "://" not in given:
        raise BadInputError(f"{option}: there is no file {given!r} here")
    return given


def _path_of(given: str, option: str) -> Path:
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise BadInputError(
            f"{option}: there is no home folder for {given!r}: write the whole path"
        ) from None


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # such as an address that is too long for a file's name
        return False


def text_of(given: str) -> str:
    if given != "-":
        return given.strip() if _GROUP.fullmatch(given) else given  # the space that made it no option
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise BadInputError("what came on stdin is no text in UTF-8: convert it first") from None


def _place_of_text(method: str) -> str:
    return "caption" if method in CAPTIONED else "text"


def moment_of(wanted: Wanted, now: float) -> float | None:
    """When it may leave; None is at once."""
    if wanted.at is not None and wanted.delay is not None:
        raise BadInputError("--at and --in say the same thing: give one of them")
    if wanted.delay is not None:
        return now + _seconds(wanted.delay)
    return None if wanted.at is None else _time(wanted.at, now)


def _seconds(text: str) -> float:
    plain = text.strip()
    return float(plain) if _NUMBER.fullmatch(plain) else duration("--in", plain)


def _time(text: str, now: float) -> float:
    """Local unless it names its zone. A time of day is the next one."""
    here = datetime.fromtimestamp(now, UTC).astimezone()
    match = _CLOCK.fullmatch(text.strip())
    if match is not None:
        hour, minute, second = (int(part or 0) for part in match.groups())
        at = here.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
        if at.astimezone() <= here:
            at += timedelta(days=1)
        return at.astimezone().timestamp()
    try:
        at = datetime.fromisoformat(text.strip()).astimezone()
        moment = at.timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadInputError(f"--at: {text!r} is not a time: write 18:30, or 2030-01-31T18:30") from None
    if moment <= now:
        raise BadInputError(f"--at: {text} is in the past: leave it out to send at once")
    return moment
