"""What is wrong with a flow, in a word for programs and a sentence for people."""

from typing import Literal

import msgspec

Kind = Literal[
    "no_initial",
    "unreachable",
    "missing_target",
    "dead_end",
    "never_ends",
    "ambiguous",
    "bad_trigger",
    "bad_button",
    "bad_name",
    "bad_time",
    "final_goes_on",
    "missing_text",
    "missing_field",
    "poll_key",
    "unknown_guard",
    "unknown_work",
    "unknown_poll",
    "too_long",
]


class Problem(msgspec.Struct, frozen=True):
    """`state` is None where it is the flow's own. The text says what is wrong and what to do."""

    kind: Kind
    state: str | None
    text: str

    def __str__(self) -> str:
        return self.text if self.state is None else f"{self.state}: {self.text}"
