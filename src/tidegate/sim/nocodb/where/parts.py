"""What a `where` consists of, whichever grammar it was written in."""

from typing import NamedTuple

DEEPEST = 50  # groups within groups; far beyond what fits an address


class Condition(NamedTuple):
    """`values` is None where none was written; a value in it is None where null was."""

    joint: str  # to what stands before it: and, or, not; empty for the first
    field: str
    operator: str
    values: tuple[str | None, ...] | None


class Group(NamedTuple):
    joint: str
    parts: "tuple[Part, ...]"


Part = Condition | Group
