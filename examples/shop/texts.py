"""The texts and products of the shop, from a file that its owner can change."""

import string
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shop.config import BadConfigError

OURS: Final = Path(__file__).with_name("texts.toml")


class Product(NamedTuple):
    id: str
    name: str
    about: str
    price: int  # cents
    colour: str  # #rrggbb


class Texts:
    """`texts("greeting", name="Ann")` returns the greeting for Ann."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def __call__(self, text: str, /, **values: object) -> str:
        return self._texts[text].format(**values)

    def price(self, cents: int) -> str:
        return self("price", amount=cents / 100)


def read_texts(path: Path | None) -> tuple[Texts, Mapping[str, Product]]:
    """Read the default texts and those of `path`. Raises BadConfigError for a wrong file."""
    ours = _read(OURS)
    theirs = _read(path) if path is not None else {}
    texts = theirs.get("texts", {})
    for name, text in texts.items():
        _check(name, text, ours["texts"])
    return Texts({**ours["texts"], **texts}), _products(theirs.get("products", ours["products"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfigError(f"the texts in {path} cannot be read: {error}") from None


def _check(name: str, text: str, ours: Mapping[str, str]) -> None:
    if name not in ours:
        raise BadConfigError(f"there is no text called {name!r}: see {OURS.name}")
    try:
        unknown = _words_in_braces(text) - _words_in_braces(ours[name])
    except (TypeError, ValueError) as error:
        raise BadConfigError(f"the text {name!r} cannot be used: {error}") from None
    if unknown:
        raise BadConfigError(f"the text {name!r} cannot have {{{unknown.pop()}}} filled in")


def _words_in_braces(text: str) -> set[str]:
    return {word for _, word, _, _ in string.Formatter().parse(text) if word is not None}


def _products(found: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Product]:
    try:
        return {name: Product(id=name, **fields) for name, fields in found.items()}
    except TypeError:
        raise BadConfigError("each product has a name, an about, a price and a colour") from None
