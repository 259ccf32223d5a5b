"""The two grammars of `where`: the usual one without quotes, and the one after an `@` with quotes."""

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.sim.nocodb.answers import NocoDbApiError, bad_filter, unreadable_filter

DEEPEST_WHERE = 50  # groups within groups; far beyond what fits an address
JOINTS = ("and", "or", "not")
CUTS = ("~and(", "~or(", "~not(", "~andnot(", "~ornot(")
PLAIN_LIST_OPERATORS = {"in", "anyof", "nanyof"}
MARKS, QUOTES = "(),", "'\""
QUOTED_LIST_OPERATORS = {"in"}


class WhereCondition(NamedTuple):
    """`values` is None if the condition has none; a value in it is None for `null`."""

    joint: str  # to the part before it: and, or, not; empty for the first
    field: str
    operator: str
    values: tuple[str | None, ...] | None


class WhereGroup(NamedTuple):
    joint: str
    parts: "tuple[WherePart, ...]"


WherePart = WhereCondition | WhereGroup


def parse_plain(text: str, depth: int = 0) -> tuple[WherePart, ...]:
    """Parse the usual grammar by its marks, as NocoDB's v2 does: without quoting or escaping.

    `(Field,op,value)`, joined by `~and`, `~or`, `~not`; a group begins with `((` or `(~` and ends with `))`.
    A value that holds such marks is misread, and two groups side by side are refused. Raises NocoDbApiError.
    """
    if depth > DEEPEST_WHERE:
        raise unreadable_filter("nested too deeply")
    begin = text.find("((") if "((" in text else text.find("(~")
    if begin < 0:
        return () if text in {"", "~not"} else tuple(map(_condition, _pieces(text)))
    end = _end_of_group(text, begin)
    before = text[:begin]
    joint = before.rpartition("~")[2] if "~" in before else ""
    # An end before the beginning is not an error in NocoDB: the text between is then read as the group.
    inner = text[min(begin, end) + 1 : max(begin, end) + 1]
    return (
        *parse_plain(before, depth + 1),
        WhereGroup(joint, parse_plain(inner, depth + 1)),
        *parse_plain(text[end + 2 :], depth + 1),
    )


def _end_of_group(text: str, begin: int) -> int:
    """Return the index of the `))` that ends the group: each further `((` before it skips one."""
    end, seen = text.find("))"), begin
    while end >= 0:
        seen = text.find("((", seen + 1, end)
        if seen < 0:
            return end
        end = text.find("))", end + 1)
    raise NocoDbApiError(500, "", "a bracket is not closed")


def _pieces(text: str) -> Iterator[str]:
    """Yield one piece for each condition, cut before its joint."""
    begin = 0
    for at in range(1, len(text)):
        if text[at] == "~" and text.startswith(CUTS, at):
            yield text[begin:at]
            begin = at
    yield text[begin:]


def _condition(text: str) -> WhereCondition:
    """Parse from the first bracket to the last; text around them is ignored."""
    before, _, rest = text.partition("(")
    joint = before.rpartition("~")[2] if "~" in before else ""
    whole = rest.rpartition(")")[0]
    found = _with_value(whole) or _without(rest)
    if found is None or not found[0] or "\n" in text:
        raise unreadable_filter("Invalid filter format.")
    return WhereCondition(joint if joint in JOINTS else "", *found)


def _with_value(whole: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Take the first word between two commas as operator, and all that follows as value."""
    words = whole.split(",")
    for at in range(1, len(words) - 1):
        if _is_word(words[at]):
            values = words[at + 1 :] if words[at] in PLAIN_LIST_OPERATORS else [",".join(words[at + 1 :])]
            return ",".join(words[:at]), words[at], tuple(values)
    return None


def _without(rest: str) -> tuple[str, str, None] | None:
    """Take the first word between a comma and a bracket as operator."""
    words = rest.split(",")
    for at in range(1, len(words)):
        word, bracket, _ = words[at].partition(")")
        if bracket and _is_word(word):
            return ",".join(words[:at]), word, None
    return None


def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").isalnum()


def parse_quoted(text: str) -> tuple[WherePart, ...]:
    reader = _Reader(text)
    parts = reader.sequence()
    reader.finish()
    return parts


class _Token(NamedTuple):
    kind: str  # mark, word or quoted
    text: str


COMMA = _Token("mark", ",")


class _Reader:
    """A parser of one pass over the tokens. Raises the 422 of an unreadable filter."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _Token("end", "")]
        self._at = 0

    def sequence(self, depth: int = 0) -> tuple[WherePart, ...]:
        """Parse `~not(…)` or `(…)`, then any number of `~and(…)`, `~or(…)`."""
        if depth > DEEPEST_WHERE:
            raise bad_filter("nested too deeply")
        parts = [self._part(self._joint({"~not"}) if self._is_word() else "", depth)]
        while self._is_word():
            parts.append(self._part(self._joint({"~and", "~or"}), depth))
        return tuple(parts)

    def finish(self) -> None:
        if self._tokens[self._at].kind != "end":
            raise bad_filter("unexpected text after the end")

    def _joint(self, allowed: set[str]) -> str:
        word = self._take().text
        if word not in allowed:
            raise bad_filter(f"'{word}' is not allowed here: use {' or '.join(sorted(allowed))}")
        return word[1:]

    def _part(self, joint: str, depth: int) -> WherePart:
        self._mark("(")
        token = self._tokens[self._at]
        if token == _Token("mark", "(") or token == _Token("word", "~not"):
            inner = self.sequence(depth + 1)
            self._mark(")")
            # NocoDB drops the joint of a group of one.
            return inner[0] if len(inner) == 1 else WhereGroup(joint, inner)
        condition = self._condition(joint)
        self._mark(")")
        return condition

    def _condition(self, joint: str) -> WhereCondition:
        field = self._value() or ""
        self._mark(",")
        operator = self._take()
        if operator.kind != "word":
            raise bad_filter(f"'{operator.text}' is not an operator")
        return WhereCondition(joint, field, operator.text, _joined(operator.text, self._values()))

    def _values(self) -> list[str | None]:
        """Parse values: there may be none after the first comma, but must be one after each further."""
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


def _joined(operator: str, values: list[str | None]) -> tuple[str | None, ...] | None:
    """Join several values into one text, except for `in`; no value is the empty text for `eq` and `neq`."""
    if operator in QUOTED_LIST_OPERATORS:
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
    """Return the index of the closing quote. One after a backslash counts only if there is no other."""
    quote, behind_backslash = text[begin], -1
    for at in range(begin + 1, len(text)):
        if text[at] == quote:
            if text[at - 1] != "\\":
                return at
            behind_backslash = at
    if behind_backslash < 0:
        raise bad_filter(f"the quote at {begin} is not closed")
    return behind_backslash
