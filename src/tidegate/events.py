"""The one stream of what happens in the core: frozen events, and who is told of them.

The stage that does something publishes it. Log lines, metrics, history and the dashboard subscribe; the core
knows none of them. An event is published once, in the process in which it happened.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from tidegate.model import BotId, BotLimits, ChatId, Claim, Message, Outcome, Rate, Record

log = logging.getLogger("tidegate")

Handler = Callable[[Any], object]


class Event(msgspec.Struct, frozen=True):
    """The root of all events. Those of messages come in batches, as the steps of a store do."""


class Accepted(Event, frozen=True):
    """Messages were put, and are as durable as the store is. Those that repeat a dedup key are left out."""

    messages: Sequence[Message]


class Claimed(Event, frozen=True):
    """Messages are about to be sent."""

    claims: Sequence[Claim]


class Attempted(Event, frozen=True):
    """One call of the worker was made, or could not be: what came of it, and the seconds it took."""

    claim: Claim
    outcome: Outcome
    seconds: float


class Ended(Event, frozen=True):
    """A message is delivered, dead, parked, expired, cancelled or replaced."""

    record: Record


class TurnTaken(Event, frozen=True):
    """A direct call was granted its turn after so many seconds; None: it was given up."""

    bot: BotId
    seconds: float | None


class CallAttempted(Event, frozen=True):
    """One attempt at a direct call: of the gate itself or of a bot library.

    `outcome` is None if the call was given up, as its turn would have come too late. `content` returns what
    was sent, as Telegram spells it, and `result` Telegram's answer, both as plain values. Both take time.
    """

    bot: BotId
    method: str
    chat_id: ChatId | None
    outcome: Outcome | None
    seconds: float  # on the wire
    content: Callable[[], Mapping[str, Any]]
    result: Callable[[], Any]


class LimitChange(msgspec.Struct, frozen=True):
    """A learned limit went down after a 429, or up after quiet time. `restored`: it is the rule again."""

    rule: Rate
    before: Rate
    after: Rate
    restored: bool = False

    @property
    def is_cut(self) -> bool:
        return self.after.count * self.before.seconds < self.before.count * self.after.seconds


class RefusalHeard(Event, frozen=True):
    """A 429, and what it has closed. `call` names one that no limit is known for."""

    bot: BotId
    retry_after: float
    closes: Literal["bot", "chat", "nothing"]
    chat_id: ChatId | None = None
    call: str | None = None


class LimitChanged(Event, frozen=True):
    """A learned limit of a bot (chat None) or a chat was cut, has recovered a step, or is restored."""

    bot: BotId
    chat_id: ChatId | None
    change: LimitChange


class LimitsSet(Event, frozen=True):
    """An operator has set the limits of a bot; without any, those of the rules hold again."""

    bot: BotId
    limits: BotLimits
    before: BotLimits


class OutageBegan(Event, frozen=True):
    bot: BotId
    obstacle: str
    waiting: int  # messages


class OutageEnded(Event, frozen=True):
    bot: BotId
    lasted: float  # seconds
    waiting: int


class UpdateReceived(Event, frozen=True):
    """An update of a bot came in, by webhook or polling. It may be repeated.

    `content` returns it as Telegram spells it, which takes time; nothing if it cannot be read.
    """

    bot: BotId
    content: Callable[[], Mapping[str, Any]]


class CyclePolled(Event, frozen=True):
    """A poller has completed a cycle: how many were asked about, in how many requests and seconds."""

    poller: str
    asked: int
    requests: int
    seconds: float


class Reminded(Event, frozen=True):
    """Reminders have fired: how many, and by how many seconds the latest of them was late."""

    fired: int
    late: float


class JobEnded(Event, frozen=True):
    """An attempt at a job has ended: `done`, `dead`, or `retry` if it runs again. Seconds it ran."""

    name: str
    outcome: Literal["done", "dead", "retry"]
    seconds: float


E = TypeVar("E", bound=Event)


class EventStream:
    """Subscribers are called in the event loop, in the order in which they subscribed, and must not block.

    One that raises is logged; the others are called all the same.
    """

    def __init__(self) -> None:
        self._handlers: Final[dict[type[Event], tuple[Handler, ...]]] = {}

    def subscribe(self, kind: type[E], handler: Callable[[E], object]) -> None:
        """Call `handler` with each event of this kind from now on."""
        self._handlers[kind] = (*self._handlers.get(kind, ()), handler)

    def has(self, kind: type[Event]) -> bool:
        """Return whether anybody listens: an event that costs something need not be made otherwise."""
        return kind in self._handlers

    def publish(self, event: Event) -> None:
        for handler in self._handlers.get(type(event), ()):
            try:
                handler(event)
            except Exception:
                log.exception("a subscriber to %s has failed", type(event).__name__)
