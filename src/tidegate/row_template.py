"""A template that is filled with a row, `Hello {name}`: strict, so that no message lacks a value. Pure."""

import re
from collections.abc import Mapping

from tidegate.errors import BadInputError
from tidegate.templates import ParseMode, escape

Row = Mapping[str, object]

# Unlike in flows, whatever cannot be filled is an error: what many have got cannot be corrected afterwards.
_PIECES = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<field>[^{}]*)\}|(?P<stray>[{}])|(?P<plain>[^{}]+)")
_NAME = re.compile(r"[^.:!\[\]\n]+")


class Template:
    """A text in which `{name}` is a field of the row, and `{{` and `}}` are braces.

    Values are escaped for the parse mode, so that a user called `<Bob>` breaks no message; the template's own
    text is not escaped.
    """

    def __init__(self, text: str, parse_mode: ParseMode | None = None) -> None:
        self._pieces = [_piece(match, text) for match in _PIECES.finditer(text)]
        self._parse_mode = parse_mode
        self.fields = tuple(dict.fromkeys(name for name, is_field in self._pieces if is_field))
        if not text.strip():
            raise BadInputError("the template is empty: Telegram sends no empty messages")

    def render(self, row: Row) -> str:
        """Return the text for one row. Raises BadInputError that names a field without a value."""
        return "".join(
            escape(value_of(row, piece), self._parse_mode) if is_field else piece
            for piece, is_field in self._pieces
        )


def value_of(row: Row, field: str) -> str:
    """Return a field of a row as text. Raises BadInputError if it is missing, empty, or no text or number."""
    if field not in row:
        known = ", ".join(row) or "none"
        raise BadInputError(f"there is no field {field!r}: the fields are {known}")
    value = row[field]
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadInputError(f"{field} is empty")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInputError(f"{field} is neither text nor a number")
    return str(value)


def _piece(match: re.Match[str], text: str) -> tuple[str, bool]:
    if (name := match["field"]) is not None:
        if not _NAME.fullmatch(name.strip()):
            hint = "write a field's plain name, such as {name}, or {{ for a brace"
            raise BadInputError(f"the template has {match[0]!r} {_position(match, text)}: {hint}")
        return name.strip(), True
    if match["stray"]:
        raise BadInputError(
            f"the template has a single {match[0]} {_position(match, text)}: write {match[0] * 2} for a brace"
        )
    return match["brace"][0] if match["brace"] else match["plain"], False


def _position(match: re.Match[str], text: str) -> str:
    before = text[: match.start()]
    return f"in line {before.count(chr(10)) + 1}, column {match.start() - before.rfind(chr(10))}"
