"""A problem of a flow."""

from collections.abc import Collection
from typing import Literal

import msgspec

ProblemKind = Literal[
    "no_initial",
    "unreachable",
    "missing_target",
    "dead_end",
    "never_ends",
    "ambiguous",
    "bad_trigger",
    "bad_button",
    "bad_call",
    "bad_media",
    "bad_name",
    "bad_time",
    "final_goes_on",
    "missing_text",
    "missing_field",
    "poll_key",
    "unknown_guard",
    "unknown_flow",
    "unknown_work",
    "unknown_poll",
    "too_long",
]


class Problem(msgspec.Struct, frozen=True):
    """`state` is None for a problem of the flow itself. The text says what is wrong and what to do."""

    kind: ProblemKind
    state: str | None
    text: str

    def __str__(self) -> str:
        return self.text if self.state is None else f"{self.state}: {self.text}"


def known_names(names: Collection[str]) -> str:
    return f"there are {', '.join(sorted(names))}" if names else "none are given"
