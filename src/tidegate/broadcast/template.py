"""A text with fields in it, `Hello {name}`: nothing but names can stand in the braces. Pure."""

import html
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

from tidegate.errors import BadInputError

ParseMode = Literal["HTML", "MarkdownV2"]
Row = Mapping[str, object]

# str.format would let a template reach into objects ({name.__class__}) and fail in many voices.
_PIECES = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<field>[^{}]*)\}|(?P<stray>[{}])|(?P<plain>[^{}]+)")
_NAME = re.compile(r"[^.:!\[\]\n]+")
# https://core.telegram.org/bots/api#markdownv2-style; the backslash escapes itself.
_MARKDOWN = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")


def _markdown(value: str) -> str:
    return _MARKDOWN.sub(r"\\\1", value)


def _as_it_is(value: str) -> str:
    return value


_ESCAPES: Final[Mapping[str | None, Callable[[str], str]]] = {
    None: _as_it_is,
    "HTML": html.escape,
    "MarkdownV2": _markdown,
}


class Template:
    """`{name}` is a field of the row, `{{` and `}}` are braces; all else stands for itself.

    Values are escaped for the parse mode, so that a person called `<Bob>` breaks no message; the template's
    own text is not.
    """

    def __init__(self, text: str, parse_mode: ParseMode | None = None) -> None:
        self._pieces = [_piece(match, text) for match in _PIECES.finditer(text)]
        self._escape = _ESCAPES[parse_mode]
        self.fields = tuple(dict.fromkeys(name for name, is_field in self._pieces if is_field))
        if not text.strip():
            raise BadInputError("the template is empty: Telegram sends no empty messages")

    def render(self, row: Row) -> str:
        """The text for one row. Raises BadInputError that names a field without a value."""
        return "".join(
            self._escape(value_of(row, piece)) if is_field else piece for piece, is_field in self._pieces
        )


def value_of(row: Row, field: str) -> str:
    """What a row says in a field, as text. Raises BadInputError if it says nothing, or no text."""
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
            raise BadInputError(f"the template has {match[0]!r} {_place(match, text)}: {hint}")
        return name.strip(), True
    if match["stray"]:
        raise BadInputError(
            f"the template has a single {match[0]} {_place(match, text)}: write {match[0] * 2} for a brace"
        )
    return match["brace"][0] if match["brace"] else match["plain"], False


def _place(match: re.Match[str], text: str) -> str:
    before = text[: match.start()]
    return f"in line {before.count(chr(10)) + 1}, column {match.start() - before.rfind(chr(10))}"
