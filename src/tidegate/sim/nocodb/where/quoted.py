"""The other grammar of `where`, after an `@`: values may be quoted, and groups stand where they like."""

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.sim.nocodb.answers import bad_filter
from tidegate.sim.nocodb.where.parts import DEEPEST, Condition, Group, Part

MARKS, QUOTES = "(),", "'\""
LISTS = {"in"}


class _Token(NamedTuple):
    kind: str  # mark, word or quoted
    text: str


COMMA = _Token("mark", ",")


class _Reader:
    """Goes through the tokens once. Raises the 422 of a filter that cannot be read."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _Token("end", "")]
        self._at = 0

    def sequence(self, depth: int = 0) -> tuple[Part, ...]:
        """`~not(…)` or `(…)`, then any number of `~and(…)`, `~or(…)`."""
        if depth > DEEPEST:
            raise bad_filter("nested too deeply")
        parts = [self._part(self._joint({"~not"}) if self._is_word() else "", depth)]
        while self._is_word():
            parts.append(self._part(self._joint({"~and", "~or"}), depth))
        return tuple(parts)

    def finish(self) -> None:
        if self._tokens[self._at].kind != "end":
            raise bad_filter("something stands behind the end")

    def _joint(self, allowed: set[str]) -> str:
        word = self._take().text
        if word not in allowed:
            raise bad_filter(f"'{word}' joins nothing here: it may be {' or '.join(sorted(allowed))}")
        return word[1:]

    def _part(self, joint: str, depth: int) -> Part:
        self._mark("(")
        token = self._tokens[self._at]
        if token == _Token("mark", "(") or token == _Token("word", "~not"):
            inner = self.sequence(depth + 1)
            self._mark(")")
            # A group of one loses its own joint: that is how NocoDB reads it.
            return inner[0] if len(inner) == 1 else Group(joint, inner)
        condition = self._condition(joint)
        self._mark(")")
        return condition

    def _condition(self, joint: str) -> Condition:
        field = self._value() or ""
        self._mark(",")
        operator = self._take()
        if operator.kind != "word":
            raise bad_filter(f"'{operator.text}' is no operator")
        return Condition(joint, field, operator.text, _joined(operator.text, self._values()))

    def _values(self) -> list[str | None]:
        """Behind the first comma there may be nothing; behind each further one there must be a value."""
        if self._tokens[self._at] != COMMA:
            return []
        self._at += 1
        if self._tokens[self._at] == _Token("mark", ")"):
            return []
        values = [self._value()]
        while self._tokens[self._at] == COMMA:
            self._at += 1
            values.append(self._value())
        return values

    def _value(self) -> str | None:
        token = self._take()
        if token.kind not in {"word", "quoted"}:
            raise bad_filter(f"expected a value, but found '{token.text}'")
        return None if token.kind == "word" and token.text in {"null", "NULL"} else token.text

    def _is_word(self) -> bool:
        return self._tokens[self._at].kind == "word"

    def _mark(self, mark: str) -> None:
        token = self._take()
        if token != _Token("mark", mark):
            raise bad_filter(f"expected '{mark}', but found '{token.text}'")

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token


def read(text: str) -> tuple[Part, ...]:
    reader = _Reader(text)
    parts = reader.sequence()
    reader.finish()
    return parts


def _joined(operator: str, values: list[str | None]) -> tuple[str | None, ...] | None:
    """Several values are one text, but for `in`; none is the empty text where texts are compared."""
    if operator in LISTS:
        return tuple(values)
    if not values:
        return ("",) if operator in {"eq", "neq"} else None
    if all(value is None for value in values):
        return (None,)
    return (",".join(value for value in values if value),)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        first = text[at]
        if first.isspace():
            at += 1
        elif first in MARKS:
            yield _Token("mark", first)
            at += 1
        elif first in QUOTES:
            end = _end_of_quote(text, at)
            yield _Token("quoted", text[at + 1 : end])
            at = end + 1
        else:
            end = next((to for to in range(at, len(text)) if text[to] in MARKS + QUOTES), len(text))
            yield _Token("word", text[at:end])
            at = end


def _end_of_quote(text: str, begin: int) -> int:
    """A quote behind a backslash ends the value only where no other does. The backslash stays in it."""
    quote, behind_backslash = text[begin], -1
    for at in range(begin + 1, len(text)):
        if text[at] == quote:
            if text[at - 1] != "\\":
                return at
            behind_backslash = at
    if behind_backslash < 0:
        raise bad_filter(f"the quote at {begin} is not closed")
    return behind_backslash
