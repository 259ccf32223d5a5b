"""The throttle: which user and chat an update is charged to, and how much. Knows no library and no store."""

from typing import Final, Protocol

import msgspec

from tidegate.inbound.throttle_rules import NEVER_CHARGED, ThrottleRules
from tidegate.inbound.updates import UpdateInfo


class Allowed(msgspec.Struct, frozen=True):
    """It is to be handled."""


class Throttled(msgspec.Struct, frozen=True):
    """It is not to be handled. Its sender may come again in `wait` seconds.

    `answer`: tell him so. True once in a window for each user, and never in front of a group.
    """

    answer: bool
    wait: float


ThrottleVerdict = Allowed | Throttled

LATE_SECONDS: Final = 60.0  # seconds

ALLOWED: Final = Allowed()


class Charge(msgspec.Struct, frozen=True):
    """`user` or `chat` is None where there is none to charge."""

    bot: int
    user: int | None
    chat: int | None
    cost: float
    never_held: bool = False
    may_answer: bool = False  # he alone would see it
    album: str | None = None  # the parts of one share a verdict, and are charged once
    sent_at: float | None = None  # seconds since the epoch, where it says so

    def age(self, now: float) -> float:
        """Seconds by which it is late. After a downtime all that was written meanwhile comes at once: each is
        charged as of when it was written. Below a minute it is now: clocks differ.
        """
        age = 0.0 if self.sent_at is None else now - self.sent_at
        return age if age >= LATE_SECONDS else 0.0


class ThrottleStore(Protocol):
    async def charge(self, charge: Charge) -> ThrottleVerdict:
        """One atomic step: all that is charged is taken, or, where it is held, nothing. Never raises."""
        ...


# Telegram's stand-ins, the same in every chat: for anonymous admins, for channels, for what it forwards.
TELEGRAM_STAND_INS: Final = frozenset({1087968824, 136817688, 777000})
WRITTEN_KINDS: Final = frozenset({"message", "edited_message", "command"})  # to the bot itself


class Throttle:
    def __init__(self, rules: ThrottleRules, buckets: ThrottleStore) -> None:
        self.rules = rules
        self.held = 0  # updates, in this process
        self._buckets = buckets

    async def check(self, about: UpdateInfo, bot: int, album: str | None = None) -> ThrottleVerdict:
        """Whether to handle an update; it is counted. `album`: its media_group_id. Never raises."""
        cost = self.rules.cost(about.kind)
        user, chat = self._whom(about)
        if about.kind in NEVER_CHARGED or not cost or (user is None and chat is None):
            return ALLOWED
        charge = Charge(
            bot=bot,
            user=user,
            chat=chat,
            cost=cost,
            never_held=about.kind in self.rules.never,
            may_answer=_may_notify(about),
            album=album,
            sent_at=about.sent_at,
        )
        verdict = await self._buckets.charge(charge)
        self.held += isinstance(verdict, Throttled)
        return verdict

    def _whom(self, about: UpdateInfo) -> tuple[int | None, int | None]:
        user = None if about.user in TELEGRAM_STAND_INS else about.user
        if about.is_private:  # its number is the user's: counted once
            return (about.chat if user is None else user), None
        return user, None if self.rules.chat is None else about.chat


def _may_notify(about: UpdateInfo) -> bool:
    """Whether the user would see it, and nobody else. The answer to a button is shown to who pressed it."""
    return about.kind == "callback_query" or (about.is_private and about.kind in WRITTEN_KINDS)
