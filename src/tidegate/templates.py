"""Texts with fields in braces, such as `Order {order_id}`, filled with values. Pure."""

import html
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

ParseMode = Literal["HTML", "MarkdownV2"]

MAX_TEXT_LENGTH: Final = 4_096  # https://core.telegram.org/bots/api#sendmessage
MAX_CAPTION_LENGTH: Final = 1_024  # of a photo and the like
MAX_VALUE_LENGTH: Final = 1_000  # less, if several together make a message too long to be sent
# str.format would reach into objects ({name.__class__}), and fail on a brace in a text.
_PIECES = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}")
# https://core.telegram.org/bots/api#markdownv2-style
_MARKDOWN = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_MARKDOWN_ESCAPED = re.compile(r"\\([_*\[\]()~`>#+\-=|{}.!\\])")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def _unchanged(value: str) -> str:
    return value


def _markdown(value: str) -> str:
    return _MARKDOWN.sub(r"\\\1", value)


_ESCAPES: Final[Mapping[str | None, Callable[[str], str]]] = {
    None: _unchanged,
    "HTML": html.escape,
    "MarkdownV2": _markdown,
}


def fill(
    text: str, data: Mapping[str, Any], parse_mode: ParseMode | None = None, longest: int = MAX_VALUE_LENGTH
) -> str:
    """Fill `{field}`s with values, each cut to `longest` and then escaped. A missing value is empty; `{{` is
    a brace, and other braces are literal.
    """
    return _substitute(text, data, _ESCAPES[parse_mode], longest)


def fill_message(
    text: str,
    data: Mapping[str, Any],
    parse_mode: ParseMode | None = None,
    longest_text: int = MAX_TEXT_LENGTH,
) -> str:
    """Fill a text, with values cut so far that Telegram takes the message."""
    longest, filled = MAX_VALUE_LENGTH, fill(text, data, parse_mode)
    while utf16_length(filled) > longest_text and longest:
        longest = longest * 3 // 4
        filled = fill(text, data, parse_mode, longest)
    return filled


def escape(text: str, parse_mode: ParseMode | None) -> str:
    """Escape a text so that it is shown without formatting."""
    return _ESCAPES[parse_mode](text)


def unescape(text: str, parse_mode: ParseMode | None) -> str:
    """Remove formatting and escapes from a text."""
    if parse_mode == "MarkdownV2":
        return _MARKDOWN_ESCAPED.sub(r"\1", text)
    return html.unescape(_TAG.sub("", text)) if parse_mode == "HTML" else text


def utf16_length(text: str) -> int:
    """The length as Telegram counts it, in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def fill_link(address: str, data: Mapping[str, Any]) -> str:
    """Fill an address. Values are quoted, so that they cannot change its host, unless one is the whole."""
    whole = _PIECES.fullmatch(address)
    return _substitute(address, data, _unchanged if whole else partial(quote, safe=""), MAX_VALUE_LENGTH)


def fields_in(text: str) -> list[str]:
    return [name for name in _PIECES.findall(text) if name]


def _substitute(text: str, data: Mapping[str, Any], escape: Callable[[str], str], longest: int) -> str:
    def piece(match: re.Match[str]) -> str:
        return escape(_value_text(data.get(match[1]), longest)) if match[1] else match[0][0]

    return _PIECES.sub(piece, text)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: max(0, longest - 1)] + "…"[:longest]


def _value_text(value: Any, longest: int) -> str:  # noqa: ANN401  (any JSON)
    return "" if value is None else cut(str(value), longest)
