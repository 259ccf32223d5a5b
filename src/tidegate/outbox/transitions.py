"""The state of a message after a call: pure, the same for every store."""

from typing import Final, assert_never

import msgspec

from tidegate.model import (
    ChatId,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    State,
    Unknown,
    Unreachable,
)

UNSETTLED_STATES: Final = frozenset({State.QUEUED, State.RETRY, State.SENDING})
DEAD_LETTER_STATES: Final = frozenset({State.DEAD, State.PARKED})
UNREADABLE: Final = "unreadable"  # the reason of a message whose stored body cannot be decoded
SUSPECT_CRASHES: Final = 2  # crashes after which a message is sent with no other suspect beside it
CRASHES_ALLOWED: Final = 5  # then it is parked: it probably kills its workers
AFTER_CRASHES: Final = "%d workers died while they sent it: find out why, then replay or drop it"


class NextState(msgspec.Struct, frozen=True):
    """The state that follows, and after how many seconds it may go again."""

    state: State
    attempts: int
    delay: float = 0.0
    reason: str | None = None
    description: str | None = None


def after_call(message: Message, attempts: int, outcome: Outcome) -> NextState:  # noqa: PLR0911  (one a case)
    """`attempts` are those made before this call."""
    made = attempts + 1
    match outcome:
        case Delivered():
            return NextState(State.DELIVERED, made)
        case Dead(reason=reason, description=description):
            return NextState(State.DEAD, made, reason=reason, description=description)
        case Refused():
            return NextState(
                State.QUEUED, attempts, reason="refused"
            )  # its chat is closed, which makes it wait
        case Migrated():
            return NextState(State.QUEUED, attempts, reason="migrated")
        case NotSent(reason=reason, delay=delay):
            return NextState(State.QUEUED, attempts, delay=delay, reason=reason)
        case Unreachable(reason=reason):
            return NextState(State.QUEUED, attempts, reason=reason)
        case Retry(delay=delay, reason=reason):
            return _retry_or_dead(message, made, delay, reason)
        case Unknown(reason=reason, delay=delay):
            if message.on_unknown == "park":
                return NextState(State.PARKED, made, reason="unknown", description=reason)
            return _retry_or_dead(message, made, delay, reason)
        case _:
            assert_never(outcome)


def after_crash(message: Message, attempts: int, crashes: int) -> NextState:
    """The lease ran out: its worker died, and it is unknown whether the call was made."""
    if crashes >= CRASHES_ALLOWED:
        return NextState(
            State.PARKED,
            attempts,
            reason="crashes",
            description=AFTER_CRASHES % crashes,
        )
    if message.on_unknown == "park":
        return NextState(State.PARKED, attempts, reason="unknown", description="its worker died")
    return NextState(State.QUEUED, attempts, reason="crash")


def other_name(chat: ChatId, outcome: Outcome) -> ChatId | None:
    """The chat id that an answer tells: of a chat that has moved, or is known by an @name so far."""
    if isinstance(outcome, Migrated):
        return outcome.chat_id
    result = outcome.result if isinstance(chat, str) and isinstance(outcome, Delivered) else None
    known = result.get("chat") if isinstance(result, dict) else None
    number = known.get("id") if isinstance(known, dict) else None
    # Stores keep 64 bits; a longer number is a proxy's bug.
    return number if type(number) is int and 0 < abs(number) < 2**63 else None


def _retry_or_dead(message: Message, made: int, delay: float, reason: str) -> NextState:
    if made >= message.max_attempts:
        return NextState(
            State.DEAD, made, reason="attempts", description=f"{made} attempts; the last: {reason}"
        )
    return NextState(State.RETRY, made, delay=delay, reason=reason)
