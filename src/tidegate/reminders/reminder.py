"""A reminder: what is sent to whom, and when. Values without I/O."""

import datetime as dt
from typing import Any, Final, Literal

import msgspec

from tidegate.model import BotId, ChatId

LatePolicy = Literal["fire", "skip", "merge"]
SpreadOrder = Literal["stable", "random", "engagement"]
SPREAD_ORDERS: Final = ("stable", "random", "engagement")


class Once(msgspec.Struct, frozen=True, tag="once"):
    """One time, on the clock of the reminder's zone."""

    at: dt.datetime  # naive: local time


class Daily(msgspec.Struct, frozen=True, tag="daily"):
    at: dt.time


class Weekly(msgspec.Struct, frozen=True, tag="weekly"):
    at: dt.time
    days: frozenset[int]  # 0 is Monday


class EveryDays(msgspec.Struct, frozen=True, tag="days"):
    """Every `days` days, counted from the local date `start`."""

    at: dt.time
    days: int
    start: dt.date


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """A cron expression of five fields, as Debian's cron reads it."""

    expression: str


Schedule = Once | Daily | Weekly | EveryDays | Cron


class Spread(msgspec.Struct, frozen=True):
    """Occurrences of many reminders at the same time leave over `seconds`, not at once.

    `stable`: each reminder has an offset of its own, always the same. `random`: another one each time, the
    same for the same `seed`. `engagement`: the most engaged users first.
    """

    seconds: float
    order: SpreadOrder = "stable"
    seed: int = 0


class QuietHours(msgspec.Struct, frozen=True):
    """Local times between which nothing is sent: an occurrence waits for `end`. May include midnight."""

    start: dt.time
    end: dt.time


class NewReminder(msgspec.Struct, frozen=True, kw_only=True):
    """A reminder as it is given. Validated where it is made: see `checked` in reminder_options.py."""

    bot: BotId
    chat_id: ChatId
    user_id: int  # the owner: by default the chat
    schedule: Schedule
    zone: str  # of the IANA database, such as Europe/Berlin
    fields: dict[str, Any]  # of the message, without chat_id, as `gate.send` takes them
    key: str | None = None  # unique for a bot: adding it again replaces the reminder
    handler: str | None = None  # the function of the application that makes the message when it is due
    spread: Spread | None = None
    engagement: float = 0.0  # of the user, 0 to 1
    quiet: QuietHours | None = None
    starts_at: float | None = None  # no occurrence before
    until: float | None = None  # no occurrence after
    count: int | None = None  # occurrences in all
    late: LatePolicy = "fire"  # after downtime: each late one, none of them, or one for all
    expires_in: float | None = None  # seconds in which the message is of use; None: until the next occurrence


class Reminder(NewReminder, frozen=True, kw_only=True):
    """A stored reminder. Times are seconds since the Unix epoch.

    An occurrence is the instant that the schedule names, or until which it was snoozed. It is due at
    `next_at`: later than the occurrence if it is spread or moved out of quiet hours.
    """

    id: int
    created_at: float
    revision: int = 0  # raised when what is queued is cancelled: the outbox does not take a key a second time
    paused: bool = False
    occurrence_at: float | None = None  # the next one; None: there is none, or it has ended
    next_at: float | None = None  # when it is due; None as above
    queued: tuple[float, ...] = ()  # the latest occurrences that were put into the outbox, the newest last
    fired: int = 0
    skipped: int = 0  # by `late="skip"`, by skip_next, or as their message could not be made
    merged: int = 0  # into a later one, by `late="merge"` or as both waited for the end of quiet hours

    @property
    def has_ended(self) -> bool:
        return self.next_at is None

    def occurrence_key(self, occurrence: float) -> str:
        """The dedup key of an occurrence: it is put into the outbox once, however often that is tried."""
        return f"reminder:{self.id}:{self.created_at:.3f}:{self.revision}:{occurrence:.0f}"

    @property
    def queued_keys(self) -> tuple[str, ...]:
        """The dedup keys of what was queued lately: to be cancelled if the reminder is changed or removed."""
        return tuple(map(self.occurrence_key, self.queued))
