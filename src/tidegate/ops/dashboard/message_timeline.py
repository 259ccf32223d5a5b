"""The past of a message, and what is to come, in words and in order. Pure."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from tidegate.history import AttemptOutcome
from tidegate.model import State
from tidegate.ops.api.history import HistoryView
from tidegate.ops.api.messages import AttemptView, MessageView, WhyView
from tidegate.ops.dashboard.formats import duration

Tone = Literal["", "good", "warn", "bad"]
SAME_MOMENT: Final = 0.002  # seconds by which an end in history and in the outbox may differ

_ENDS: Final[dict[str, tuple[str, Tone]]] = {
    "delivered": ("Delivered", "good"),
    "dead": ("Died", "bad"),
    "parked": ("Parked: nobody knows whether it arrived", "warn"),
    "expired": ("Expired: its deadline passed before it could go", ""),
    "cancelled": ("Cancelled", ""),
    "replaced": ("Replaced by a newer one with the same coalesce key", ""),
}
_OUTCOMES: Final[dict[AttemptOutcome, tuple[str, str, Tone]]] = {
    AttemptOutcome.REFUSED: ("refused (429)", "Telegram asks to wait {wait}; it does not count.", "warn"),
    AttemptOutcome.RETRY: ("failed ({reason})", "It is tried again after {wait}.", "warn"),
    AttemptOutcome.UNKNOWN: ("no answer ({reason})", "The request left: it may have arrived.", "warn"),
    AttemptOutcome.MIGRATED: ("the group has moved", "It goes to the new chat.", ""),
    AttemptOutcome.DEAD: ("Telegram will not take it ({reason})", "", "bad"),
    AttemptOutcome.NOT_SENT: ("not sent ({reason})", "It went back to its place, and nothing counts.", ""),
    AttemptOutcome.UNREACHABLE: (
        "the bot cannot send ({reason})",
        "The whole bot waits {wait}; it does not count.",
        "warn",
    ),
}


class TimelineItem(NamedTuple):
    at: float | None  # None: nobody knows
    title: str
    text: str = ""
    tone: Tone = ""
    is_exact: bool = True  # False: only its place in the order is known


def timeline_of(
    message: MessageView,
    attempts: Iterable[AttemptView],
    ends: Iterable[HistoryView],
    why: WhyView | None,
    now: float,
) -> list[TimelineItem]:
    """Return what is known of a message that the outbox has, the oldest first."""
    items = [TimelineItem(message.created_at, "Accepted", "Once accepted, it is never lost.")]
    items += _before(message, now)
    items += map(attempt_item, attempts)
    earlier = [one for one in ends if not _is_end_of(message, one)]
    for end in earlier:
        items.append(end_item(end.state.value, end.ended_at or end.created_at, end.reason, end.description))
    if earlier:
        replayed = max(one.ended_at or one.created_at for one in earlier)
        again = "Somebody has replayed it."
        items.append(TimelineItem(replayed + SAME_MOMENT, "Queued anew", again, is_exact=False))
    if message.settled_at is not None:
        said = f"At attempt {message.attempts}." if message.state is State.DELIVERED else message.description
        items.append(end_item(message.state.value, message.settled_at, message.reason, said))
    return _in_order(items) + _to_come(message, why)


def timeline_of_history(ends: list[HistoryView], attempts: Iterable[AttemptView]) -> list[TimelineItem]:
    """Return what history knows of a message that the outbox has forgotten."""
    items = [TimelineItem(min(one.created_at for one in ends), "Accepted")] if ends else []
    items += map(attempt_item, attempts)
    known: set[tuple[str, float]] = set()
    for end in ends:
        at = end.ended_at or end.created_at
        if (end.state.value, at) not in known:  # an album has a row for each message
            items.append(end_item(end.state.value, at, end.reason, end.description))
        known.add((end.state.value, at))
    return _in_order(items)


def attempt_item(attempt: AttemptView) -> TimelineItem:
    """Say what came of an attempt that did not deliver."""
    wait = "" if attempt.wait is None else duration(attempt.wait)
    reason, said = attempt.reason or "no reason", attempt.description or ""
    took = f"The answer came after {_exact(attempt.seconds)}."
    title, text, tone = _attempt_in_words(attempt.outcome, attempt.number, reason, wait)
    told = f"Telegram said: {said}." if said and attempt.outcome is not AttemptOutcome.MIGRATED else said
    shown = took if attempt.outcome is not AttemptOutcome.NOT_SENT else ""
    return TimelineItem(attempt.at, title, " ".join(filter(None, (text, told, shown))), tone)


def _attempt_in_words(outcome: AttemptOutcome, number: int, reason: str, wait: str) -> tuple[str, str, Tone]:
    what, text, tone = _OUTCOMES[outcome]
    return f"Attempt {number}: {what.format(reason=reason)}", text.format(wait=wait), tone


def _exact(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def end_item(state: str, at: float, reason: str | None, description: str | None) -> TimelineItem:
    title, tone = _ENDS.get(state, (state.capitalize(), ""))
    shown = f"{title}: {reason}" if reason and state in {"dead", "parked"} else title
    return TimelineItem(at, shown, description or "", tone)


def _before(message: MessageView, now: float) -> list[TimelineItem]:
    due = message.not_before
    if due is None or due <= message.created_at or due > now:  # what is to come says when it leaves
        return []
    return [TimelineItem(due, "Its time came", "It was to be sent from then on.")]


def _is_end_of(message: MessageView, end: HistoryView) -> bool:
    """Return whether a row of history is the end that the outbox has."""
    at = end.ended_at or end.created_at
    return message.settled_at is not None and abs(at - message.settled_at) <= SAME_MOMENT


def _to_come(message: MessageView, why: WhyView | None) -> list[TimelineItem]:
    items: list[TimelineItem] = []
    if why is not None and why.state in {State.QUEUED, State.RETRY}:
        leaves = "Leaves" if why.expected_at is not None else "Leaves when somebody acts"
        items.append(TimelineItem(why.expected_at, leaves, "as things stand"))
        if message.expires_at is not None:
            items.append(TimelineItem(message.expires_at, "Deadline", "Later it is not sent any more."))
    elif message.state is State.SENDING:
        items.append(TimelineItem(None, "On the wire", "It is being sent in this moment."))
    return items


def _in_order(items: list[TimelineItem]) -> list[TimelineItem]:
    return sorted(items, key=lambda item: item.at or 0.0)
