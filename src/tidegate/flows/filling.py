"""`Order {order_id}` with the data of a session: nothing but names stand in braces."""

import html
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from tidegate.flows.model import ParseMode

LONGEST_VALUE: Final = 1_000  # what a person wrote must not make a message too long to be sent
# str.format would reach into objects ({name.__class__}), and fail on a brace in a text.
_PIECES = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}")
# https://core.telegram.org/bots/api#markdownv2-style
_MARKDOWN = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")


def _as_it_is(value: str) -> str:
    return value


def _markdown(value: str) -> str:
    return _MARKDOWN.sub(r"\\\1", value)


_ESCAPES: Final[Mapping[str | None, Callable[[str], str]]] = {
    None: _as_it_is,
    "HTML": html.escape,
    "MarkdownV2": _markdown,
}


def fill(text: str, data: Mapping[str, Any], parse_mode: ParseMode | None = None) -> str:
    """A field without a value is empty; `{{` is a brace; other braces stand for themselves."""
    return _filled(text, data, _ESCAPES[parse_mode])


def fill_link(address: str, data: Mapping[str, Any]) -> str:
    """A value cannot lead elsewhere than the address says, unless it is the whole address."""
    whole = _PIECES.fullmatch(address)
    return _filled(address, data, _as_it_is if whole else partial(quote, safe=""))


def fields_in(text: str) -> list[str]:
    return [name for name in _PIECES.findall(text) if name]


def _filled(text: str, data: Mapping[str, Any], escape: Callable[[str], str]) -> str:
    def piece(match: re.Match[str]) -> str:
        return escape(_shown(data.get(match[1]))) if match[1] else match[0][0]

    return _PIECES.sub(piece, text)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _shown(value: Any) -> str:  # noqa: ANN401  (whatever JSON has)
    return "" if value is None else cut(str(value), LONGEST_VALUE)
