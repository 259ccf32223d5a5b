"""Dead letters counted by bot, state and reason: how parts of a count become one. Pure."""

from collections.abc import Iterable

import msgspec

from tidegate.outbox.port import LetterGroup


def grouped(parts: Iterable[LetterGroup]) -> list[LetterGroup]:
    """Return one group for each bot, state and reason, the largest first."""
    groups: dict[tuple[object, ...], LetterGroup] = {}
    for part in parts:
        key = (part.bot, part.state, part.reason)
        known = groups.get(key)
        groups[key] = part if known is None else _together(known, part)
    return sorted(groups.values(), key=lambda one: (-one.count, one.bot, one.state, one.reason or ""))


def _together(one: LetterGroup, other: LetterGroup) -> LetterGroup:
    return msgspec.structs.replace(
        one,
        count=one.count + other.count,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
        latest=other.latest if other.last_at >= one.last_at else one.latest,
    )
