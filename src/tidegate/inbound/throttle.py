"""The throttle: which user and chat an update is charged to, and how much. Knows no library and no store."""

from typing import Final, Protocol

import msgspec

from tidegate.inbound.throttle_rules import NEVER_CHARGED, ThrottleRules
from tidegate.inbound.updates import UpdateInfo

LATE_SECONDS: Final = 60.0
# Telegram's placeholders, the same in every chat: for anonymous admins, for channels, for what it forwards.
TELEGRAM_STAND_INS: Final = frozenset({1087968824, 136817688, 777000})
WRITTEN_KINDS: Final = frozenset({"message", "edited_message", "command"})  # to the bot itself


class Allowed(msgspec.Struct, frozen=True):
    """The update is to be handled."""


class Throttled(msgspec.Struct, frozen=True):
    """The update is not to be handled. Its sender may write again in `wait` seconds.

    `notify`: tell the sender so. True once in a window for each user, and never where others would read it.
    """

    notify: bool
    wait: float


ThrottleVerdict = Allowed | Throttled

ALLOWED: Final = Allowed()


class Charge(msgspec.Struct, frozen=True):
    """The price of one update. `user` or `chat` is None where there is none to charge."""

    bot: int
    user: int | None
    chat: int | None
    cost: float
    never_throttled: bool = False
    may_notify: bool = False  # the user alone would see it
    album: str | None = None  # the parts of one share a verdict, and are charged once
    sent_at: float | None = None  # seconds since the epoch, if known

    def age(self, now: float) -> float:
        """Return by how many seconds it is late, 0 below a minute, as clocks differ.

        After a downtime everything written meanwhile arrives at once: each update is charged as of the time
        when it was written.
        """
        age = 0.0 if self.sent_at is None else now - self.sent_at
        return age if age >= LATE_SECONDS else 0.0


class ThrottleStore(Protocol):
    """The buckets of users and chats. One contract suite runs on every kind."""

    async def charge(self, charge: Charge) -> ThrottleVerdict:
        """Charge both user and chat, or neither if it is throttled, in one atomic step. Never raises."""
        ...


class Throttle:
    def __init__(self, rules: ThrottleRules, store: ThrottleStore) -> None:
        self.rules = rules
        self.throttled = 0  # updates, in this process
        self._store = store

    async def check(self, update: UpdateInfo, bot: int, album: str | None = None) -> ThrottleVerdict:
        """Count an update, and return whether to handle it. `album`: its media_group_id. Never raises."""
        cost = self.rules.cost(update.kind)
        user, chat = self._charged(update)
        if update.kind in NEVER_CHARGED or not cost or (user is None and chat is None):
            return ALLOWED
        charge = Charge(
            bot=bot,
            user=user,
            chat=chat,
            cost=cost,
            never_throttled=update.kind in self.rules.never,
            may_notify=_may_notify(update),
            album=album,
            sent_at=update.sent_at,
        )
        verdict = await self._store.charge(charge)
        self.throttled += isinstance(verdict, Throttled)
        return verdict

    def _charged(self, update: UpdateInfo) -> tuple[int | None, int | None]:
        """Return the user and the chat."""
        user = None if update.user in TELEGRAM_STAND_INS else update.user
        if update.is_private:  # its id is the user's: charged once
            return (update.chat if user is None else user), None
        return user, None if self.rules.chat is None else update.chat


def _may_notify(update: UpdateInfo) -> bool:
    """Only where nobody else would see it. The answer to a button is shown to the user who pressed it."""
    return update.kind == "callback_query" or (update.is_private and update.kind in WRITTEN_KINDS)
