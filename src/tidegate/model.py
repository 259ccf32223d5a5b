"""The words of the domain: values without I/O."""

import datetime as dt
import re
import zoneinfo
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, NewType, Self

import msgspec

from tidegate.errors import BadInputError

BotId = NewType("BotId", int)
TicketId = NewType("TicketId", str)
ChatId = int | str  # as Telegram spells it: a number or @name

MAX_ATTEMPTS: Final = 5  # of a message, if nothing else is set

_RATE = re.compile(r"(\d{1,9})/(\d{1,9}(?:\.\d{1,6})?)")


class Rate:
    """At most `count` calls in any `seconds` seconds. Written `30/1`. Immutable."""

    # No dataclass: msgspec would then read and write {"count": …, "seconds": …} instead of the text.
    __slots__ = ("count", "seconds")

    def __init__(self, count: int, seconds: float) -> None:
        self.count: Final = count
        self.seconds: Final = seconds

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise BadInputError(f"{text!r} is not a limit: write calls/seconds, such as 30/1 or 20/60")
        rate = cls(int(match[1]), float(match[2]))
        if rate.count < 1 or rate.seconds <= 0:
            raise BadInputError(f"{text!r} would never let a call pass: both numbers must be above 0")
        return rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and (self.count, self.seconds) == (other.count, other.seconds)

    def __hash__(self) -> int:
        return hash((self.count, self.seconds))

    def __repr__(self) -> str:
        return f"Rate({self})"

    def __str__(self) -> str:
        return f"{self.count}/{self.seconds:g}"


class BotLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one bot that an operator has set. None: that of the rules holds."""

    bot: Rate | None = None  # all its calls together
    private: Rate | None = None  # each private chat
    group: Rate | None = None  # each group and channel

    @property
    def set_ones(self) -> dict[str, Rate]:
        """The limits that are set, by name."""
        named = {"bot": self.bot, "private": self.private, "group": self.group}
        return {name: rate for name, rate in named.items() if rate is not None}

    def __bool__(self) -> bool:
        """Return whether any is set."""
        return bool(self.set_ones)


class DailyHours(NamedTuple):
    """A part of each day, written `02:00-05:00` (UTC) or `22:00-05:00 Europe/Berlin`."""

    start: dt.time
    end: dt.time
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str) -> Self:
        span, _, zone = text.strip().partition(" ")
        try:
            start, end = map(dt.time.fromisoformat, span.split("-"))
            zoneinfo.ZoneInfo(zone.strip() or "UTC")
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            start = end = dt.time()
        if start == end:
            example = "02:00-05:00 (UTC), or 02:00-05:00 Europe/Berlin"
            raise BadInputError(f"{text!r} is no part of a day: write {example}")
        return cls(start, end, zone.strip() or "UTC")

    def seconds_until(self, now: float) -> float:
        """Return the seconds from `now` until they begin; 0 within them."""
        local = dt.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(self.zone))
        time = local.time()
        if self.start <= self.end:
            within = self.start <= time < self.end
        else:  # over midnight
            within = time >= self.start or time < self.end
        if within:
            return 0.0
        day = local.date() if time < self.start else local.date() + dt.timedelta(days=1)
        return dt.datetime.combine(day, self.start, local.tzinfo).timestamp() - now


class Priority(StrEnum):
    """High, normal and low messages share by weight, 16 : 4 : 1, so that nothing starves."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class File(msgspec.Struct, frozen=True, tag=True):
    """A file to upload, from disk or from memory. One that Telegram has is named by its file_id, a text."""

    path: str | None = None
    content: bytes | None = None
    name: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call that waits to be made. Times are seconds since the Unix epoch."""

    id: TicketId
    bot: BotId
    chat_id: ChatId
    method: str
    params: dict[str, Any]  # without chat_id
    priority: Priority = Priority.NORMAL
    urgent: bool = False  # takes its slots even when none is free
    not_before: float | None = None
    expires_at: float | None = None
    dedup_key: str | None = None
    dedup_for: float = 86_400.0  # seconds in which a second put with the key returns the first ticket
    coalesce_key: str | None = None  # a newer one with the key takes the place of one that waits
    max_attempts: int | None = None  # None: the setting of the process that sends it
    on_unknown: Literal["resend", "park"] = "resend"  # after a request that left and was not answered


class Probe(msgspec.Struct, frozen=True, array_like=True):
    """The claim of the one call that finds out whether a bot can send again."""

    number: int  # in this outage, 1 for the first
    obstacle: str
    lasted: float  # seconds since the outage began


class Claim(msgspec.Struct, frozen=True):
    """The right to make one call now. A settlement with an older token is refused: another one holds it."""

    message: Message
    token: int
    attempt: int  # 1 for the first
    granted_at: float = 0.0  # monotonic, of the process that claimed
    probe: Probe | None = None


class Delivered(msgspec.Struct, frozen=True, tag=True):
    result: Any  # Telegram's


class Refused(msgspec.Struct, frozen=True, tag=True):
    """429: the message goes back, and no attempt is counted."""

    retry_after: float


class Retry(msgspec.Struct, frozen=True, tag=True):
    """It surely did not happen: again after `delay` seconds, if attempts are left.

    Not `counted` as an attempt: Telegram as a whole may be at fault, not this message.
    """

    delay: float
    reason: str
    counted: bool = True


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """The request left and no answer came: the message's own choice decides; if again, after `delay`.

    `wait`: seconds for which its bot waits, as several answers in a row were lost.
    """

    reason: str
    delay: float = 1.0
    wait: float = 0.0


class Migrated(msgspec.Struct, frozen=True, tag=True):
    """The group became a supergroup: the lane moves there, this message first."""

    chat_id: int


class Dead(msgspec.Struct, frozen=True, tag=True):
    """It will never succeed. `whole_chat`: neither will anything else for this chat."""

    reason: str  # a word: blocked, not_found, bad_request, attempts …
    description: str  # Telegram's
    whole_chat: bool = False


class NotSent(msgspec.Struct, frozen=True, tag=True):
    """It never left this process: the slots are free again at once, nothing is counted.

    It goes again after `delay` seconds.
    """

    reason: str
    delay: float = 0.0


class Unreachable(msgspec.Struct, frozen=True, tag=True):
    """Its bot cannot send (no connection, no valid token, 5xx for all): it goes back uncounted, the bot waits
    so long, and then one message finds out whether it can.
    """

    wait: float
    reason: str
    lasted: float = 0.0  # seconds since the outage began


LOST_ANSWERS: Final = "answers are lost"  # an outage in which a message may arrive, and its answer does not
# Reasons of deaths before the call was made, and of errors that say that the bot cannot send.
_NOT_OF_TELEGRAM: Final = frozenset(("bad_input", "unreadable", "unauthorized", "not_found_method"))

Outcome = Delivered | Refused | Retry | Unknown | Migrated | Dead | NotSent | Unreachable


def shows_that_bot_sends(outcome: Outcome) -> bool:
    """Return whether Telegram itself answered the call of this bot."""
    match outcome:
        case Delivered() | Refused() | Migrated():
            return True
        case Retry(counted=counted):
            return counted
        case Dead(reason=reason):
            return reason not in _NOT_OF_TELEGRAM
        case NotSent() | Unknown() | Unreachable():
            return False


class Settlement(msgspec.Struct, frozen=True):
    """How a claim ended, and how many seconds ago the answer came.

    `max_attempts`: the setting of the process that sent it, for a message that has none of its own.
    """

    claim: Claim
    outcome: Outcome
    age: float = 0.0
    max_attempts: int = MAX_ATTEMPTS


class State(StrEnum):
    """Where a message is. The first four wait or move; the others are ends."""

    QUEUED = "queued"
    SENDING = "sending"
    RETRY = "retry"
    PARKED = "parked"  # outcome unknown, and it asked not to be sent again
    DELIVERED = "delivered"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"  # by a newer one with the same coalesce key


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A message and its state. Times are seconds since the Unix epoch."""

    message: Message
    state: State
    created_at: float
    attempts: int = 0
    crashes: int = 0
    settled_at: float | None = None
    reason: str | None = None  # a word: why it is dead or parked, or is tried again
    description: str | None = None
    result: Any = None  # Telegram's
    body: bytes | None = None  # as it is stored, if it cannot be decoded


class Ticket(msgspec.Struct, frozen=True):
    """The result of a put: the id, new or that of an earlier put with the same dedup key."""

    id: TicketId
    fresh: bool = True


class Why(msgspec.Struct, frozen=True):
    """Why a message has not left yet: each thing it waits for, and when it should go as things stand."""

    state: State
    waits_for: tuple[str, ...]
    expected_in: float | None  # seconds; None if it depends on someone
