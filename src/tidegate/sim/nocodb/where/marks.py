"""The usual grammar of `where`, read as NocoDB's v2 reads it: by its marks, without quoting or escaping.

`(Field,op,value)`, joined by `~and`, `~or`, `~not`; a group begins with `((` or `(~` and ends with `))`.
A value that holds such marks is read as something else, and two groups side by side not at all.
"""

from collections.abc import Iterator

from tidegate.sim.nocodb.answers import ApiError, unreadable_filter
from tidegate.sim.nocodb.where.parts import DEEPEST, Condition, Group, Part

JOINTS = ("and", "or", "not")
CUTS = ("~and(", "~or(", "~not(", "~andnot(", "~ornot(")
LISTS = {"in", "anyof", "nanyof"}


def read(text: str, depth: int = 0) -> tuple[Part, ...]:
    """Raises the error of a filter that cannot be read."""
    if depth > DEEPEST:
        raise unreadable_filter("nested too deeply")
    begin = text.find("((") if "((" in text else text.find("(~")
    if begin < 0:
        return () if text in {"", "~not"} else tuple(map(_condition, _pieces(text)))
    end = _end_of_group(text, begin)
    before = text[:begin]
    joint = before.rpartition("~")[2] if "~" in before else ""
    # An end that stands before the beginning is no error there: what lies between is then read as the group.
    inner = text[min(begin, end) + 1 : max(begin, end) + 1]
    return (*read(before, depth + 1), Group(joint, read(inner, depth + 1)), *read(text[end + 2 :], depth + 1))


def _end_of_group(text: str, begin: int) -> int:
    """Where the `))` stands that ends the group: each further `((` before it puts it off by one."""
    end, seen = text.find("))"), begin
    while end >= 0:
        seen = text.find("((", seen + 1, end)
        if seen < 0:
            return end
        end = text.find("))", end + 1)
    raise ApiError(500, "", "a bracket is not closed")


def _pieces(text: str) -> Iterator[str]:
    """One for each condition, cut before its joint."""
    begin = 0
    for at in range(1, len(text)):
        if text[at] == "~" and text.startswith(CUTS, at):
            yield text[begin:at]
            begin = at
    yield text[begin:]


def _condition(text: str) -> Condition:
    """From the first bracket to the last; whatever stands around is passed over."""
    before, _, rest = text.partition("(")
    joint = before.rpartition("~")[2] if "~" in before else ""
    whole = rest.rpartition(")")[0]
    found = _with_value(whole) or _without(rest)
    if found is None or not found[0] or "\n" in text:
        raise unreadable_filter("Invalid filter format.")
    return Condition(joint if joint in JOINTS else "", *found)


def _with_value(whole: str) -> tuple[str, str, tuple[str, ...]] | None:
    """The operator is the first word between two commas; the value is all that follows."""
    words = whole.split(",")
    for at in range(1, len(words) - 1):
        if _is_word(words[at]):
            values = words[at + 1 :] if words[at] in LISTS else [",".join(words[at + 1 :])]
            return ",".join(words[:at]), words[at], tuple(values)
    return None


def _without(rest: str) -> tuple[str, str, None] | None:
    """The operator is the first word between a comma and a bracket."""
    words = rest.split(",")
    for at in range(1, len(words)):
        word, bracket, _ = words[at].partition(")")
        if bracket and _is_word(word):
            return ",".join(words[:at]), word, None
    return None


def _is_word(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").isalnum()
