"""Parameters of a Bot API call, read as Telegram reads them, and the errors it answers with."""

import html
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.sim.telegram.entities import Json


class TelegramApiError(Exception):
    """An error of the Bot API, with Telegram's code and text."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters

    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"ok": False, "error_code": self.code, "description": self.description}
        return body | {"parameters": self.parameters} if self.parameters else body


def bad_request(reason: str) -> TelegramApiError:
    return TelegramApiError(400, f"Bad Request: {reason}")


NOT_FOUND = TelegramApiError(404, "Not Found")
UNKNOWN_METHOD = TelegramApiError(404, "Not Found: method not found")
UNAUTHORIZED = TelegramApiError(401, "Unauthorized")
QUERY_TOO_OLD = bad_request("query is too old and response timeout expired or query ID is invalid")


MAX_BUTTON_DATA = 64
MOST_IDENTIFIERS = 100
DEEPEST = 16  # levels of a nested parameter; Telegram needs fewer
LARGEST = 2**63
_TAG = re.compile(r"<[^>]+>")
_UNREADABLE = LARGEST  # is refused as too large


class CallParameters(msgspec.Struct, eq=False):
    params: Mapping[str, Any]

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.params.get(name)
        if value is None:
            value = default
        number = to_int(value) if isinstance(value, str) else value
        if not isinstance(number, int) or not -LARGEST < number < LARGEST:
            raise bad_request(f"{name} must be an integer" if value is not None else f"{name} is empty")
        return number

    def number(self, name: str) -> float:
        value = self.params.get(name)
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise bad_request(f"{name} is empty")
        return number

    def flag(self, name: str, *, default: bool = False) -> bool:
        # No set: a list has no hash.
        return self.params[name] in (True, "true", "True", "1") if name in self.params else default

    def string(self, name: str) -> str:
        """Return a short text such as an id; empty if it is missing or not a text."""
        value = self.params.get(name)
        return value if isinstance(value, str) else ""

    def required(self, name: str) -> str:
        text = self.string(name)
        if not text.strip():
            raise bad_request(f'parameter "{name}" is required')
        return text

    def text(self, name: str, most: int, *, what: str) -> str:
        """Return a text. Raises if it is longer than `most` without its markup."""
        value = self.params.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
        if len(value) > most:
            marked = self.string("parse_mode").lower() == "html"
            if len(html.unescape(_TAG.sub("", value)) if marked else value) > most:
                raise bad_request(f"{what} is too long")
        return value

    def nested(self, name: str) -> Any:  # noqa: ANN401  (any JSON)
        """Return any JSON that can be kept and sent back: not too deep, without too large numbers."""
        value = self.params.get(name)
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError):
                value = _UNREADABLE
        if not _fits(value, DEEPEST):
            raise bad_request(f"can't parse {name} JSON object")
        return value

    def objects(self, name: str, *, expected: str) -> list[Json]:
        """Return a list of objects; `expected` is Telegram's name for one."""
        value = self.nested(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise bad_request(f"expected an Array of {expected}")
        return value

    def identifiers(self, name: str) -> list[int]:
        """Return message ids."""
        values = self.nested(name)
        if not values:
            raise bad_request("message identifiers are not specified")
        if not isinstance(values, list):
            raise bad_request("expected an Array of message identifiers")
        if len(values) > MOST_IDENTIFIERS:
            raise bad_request("too many message identifiers specified")
        read = (to_int(value) if isinstance(value, str) else value for value in values)
        numbers = [number for number in read if isinstance(number, int)]
        if len(numbers) < len(values):
            raise bad_request("message identifier must be a Number")
        return numbers

    def entities(self, name: str) -> Json:
        """Return the message field of its entities; empty if none are given."""
        if name not in self.params:
            return {}
        entities = self.nested(name)
        if not isinstance(entities, list) or not all(isinstance(entity, dict) for entity in entities):
            raise bad_request(f"can't parse {name} JSON object")
        return {name: entities}

    def keyboard(self) -> Json:
        """Return the message field of an inline keyboard; empty for other keyboards, which no message has."""
        markup = self.nested("reply_markup")
        if markup is None:
            return {}
        if not isinstance(markup, dict):
            raise bad_request("object expected as reply markup")
        if "inline_keyboard" not in markup:
            return {}
        rows = markup["inline_keyboard"]
        if not isinstance(rows, list):
            raise bad_request('field "inline_keyboard" of the InlineKeyboardMarkup must be an Array')
        for row in rows:
            if not isinstance(row, list) or not all(isinstance(button, dict) for button in row):
                raise bad_request("can't parse inline keyboard button")
            for button in row:
                data = button.get("callback_data", "")
                if not isinstance(data, str) or len(data.encode()) > MAX_BUTTON_DATA:
                    raise bad_request("BUTTON_DATA_INVALID")
        return {"reply_markup": markup} if rows else {}

    def keys(self) -> list[list[Json]] | None:
        """Return the keyboard to show below the chat, an empty one to remove it; None: it stays as it is."""
        markup = self.nested("reply_markup")
        if not isinstance(markup, dict):
            return None
        if markup.get("remove_keyboard"):
            return []
        rows = markup.get("keyboard")
        if rows is None:
            return None
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise bad_request('field "keyboard" of the ReplyKeyboardMarkup must be an Array of Arrays')
        keys = [[{"text": key} if isinstance(key, str) else key for key in row] for row in rows]
        for key in (key for row in keys for key in row):
            if not isinstance(key, dict) or not isinstance(key.get("text"), str) or not key["text"]:
                raise bad_request("can't parse keyboard button: text is empty")
        return keys


def to_int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _fits(value: object, depth: int) -> bool:
    if type(value) is str:
        return True
    if isinstance(value, dict):
        return depth > 0 and all(_fits(part, depth - 1) for part in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_fits(part, depth - 1) for part in value)
    return not isinstance(value, int) or -LARGEST < value < LARGEST
