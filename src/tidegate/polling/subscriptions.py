"""The words of polling: who waits for what, and what he is told."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

Kind = Literal["met", "reversed", "gone"]


class Subscription(msgspec.Struct, frozen=True):
    """Somebody waits for something. `data` is kept with it: whatever the bot needs to tell him."""

    key: str  # what is waited for: a record's id, an order's number
    data: dict[str, Any] = {}
    since: float = 0.0  # seconds since the epoch


class News(msgspec.Struct, frozen=True):
    """What has become of it: it came true, did not stay true, or its record is gone."""

    key: str
    value: Any = None  # what was fetched: a row, or True; as JSON has it
    kind: Kind = "met"


Notify = Callable[[Subscription, News], Awaitable[None] | None]
"""Told once for each news. What it puts into the gate is put once, even if the process dies meanwhile."""

Fetch = Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]
"""Of these keys, what has come true, with a value. A missing key, None or False: not yet."""
