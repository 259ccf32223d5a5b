"""The state of a message after a call: pure, the same for every store."""

from typing import Final, assert_never

import msgspec

from tidegate.model import (
    LOST_ANSWERS,
    MAX_ATTEMPTS,
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
# A message whose bot could not send waits longer than its bot: the next probes are others, if some wait, so
# that a few messages that alone draw the error do not hold up the rest.
PROBES_LET_PAST: Final = 3
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


def after_call(  # noqa: C901, PLR0911  (one a case)
    message: Message, attempts: int, outcome: Outcome, max_attempts: int = MAX_ATTEMPTS
) -> NextState:
    """`attempts`: those made before this call. `max_attempts`: of a message that has none of its own."""
    made = attempts + 1
    most = max_attempts if message.max_attempts is None else message.max_attempts
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
        case Unreachable(wait=wait, reason=reason):
            return NextState(State.QUEUED, attempts, delay=PROBES_LET_PAST * wait + 1.0, reason=reason)
        case Retry(delay=delay, reason=reason, counted=False):
            return NextState(State.RETRY, attempts, delay=delay, reason=reason)
        case Retry(delay=delay, reason=reason):
            return _retry(most, made, delay, reason) or _give_up(State.DEAD, "attempts", made, reason)
        case Unknown(reason=reason, delay=delay):
            if message.on_unknown == "park":
                return NextState(State.PARKED, made, reason="unknown", description=reason)
            # It may have arrived each time: an operator decides, it is not called dead.
            return _retry(most, made, delay, reason) or _give_up(State.PARKED, "unknown", made, reason)
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


def _retry(most: int, made: int, delay: float, reason: str) -> NextState | None:
    if made >= most:
        return None
    return NextState(State.RETRY, made, delay=delay, reason=reason)


def _give_up(state: State, why: str, made: int, last: str) -> NextState:
    return NextState(state, made, reason=why, description=given_up(str(made), last))


_IN_WORDS: Final = {
    "server_error": "Telegram answered with a server error (5xx)",
    "conflict": "Telegram answered with a conflict (409)",
    "not_telegram": "a proxy answered in place of Telegram",
    "malformed": "the answer could not be read",
    "timeout": "no answer came in time",
}


def given_up(attempts: str, last: str) -> str:
    """Describe the end of a message or call whose attempts have all failed."""
    return f"given up after {attempts} attempts; the last failure: {_IN_WORDS.get(last, last)}"


def outage_in(outcome: Outcome) -> tuple[float, str] | None:
    """The seconds for which its bot must wait, and why; None if the outcome says nothing of the kind."""
    match outcome:
        case Unreachable(wait=wait, reason=reason):
            return wait, reason
        case Unknown(wait=wait) if wait > 0:
            return wait, LOST_ANSWERS
        case _:
            return None
