"""The throttle: who is charged for an update, and how much. Knows no library and no store."""

from typing import Final

from tidegate.inbound.throttle.base import PASS, Buckets, Charge, Held, Verdict
from tidegate.inbound.throttle.rules import EVENTS, ThrottleRules
from tidegate.inbound.updates import About

# Telegram's stand-ins, the same in every chat: for anonymous admins, for channels, for what it forwards.
NOBODY: Final = frozenset({1087968824, 136817688, 777000})
WRITTEN: Final = frozenset({"message", "edited_message", "command"})  # to the bot itself


class Throttle:
    def __init__(self, rules: ThrottleRules, buckets: Buckets) -> None:
        self.rules = rules
        self.held = 0  # updates, in this process
        self._buckets = buckets

    async def check(self, about: About, bot: int, album: str | None = None) -> Verdict:
        """Whether to handle an update; it is counted. `album`: its media_group_id. Never raises."""
        cost = self.rules.cost(about.kind)
        user, chat = self._whom(about)
        if about.kind in EVENTS or not cost or (user is None and chat is None):
            return PASS
        charge = Charge(
            bot=bot,
            user=user,
            chat=chat,
            cost=cost,
            never_held=about.kind in self.rules.never,
            may_answer=_may_answer(about),
            album=album,
            sent_at=about.sent_at,
        )
        verdict = await self._buckets.charge(charge)
        self.held += isinstance(verdict, Held)
        return verdict

    def _whom(self, about: About) -> tuple[int | None, int | None]:
        user = None if about.user in NOBODY else about.user
        if about.is_private:  # its number is the user's: counted once
            return (about.chat if user is None else user), None
        return user, None if self.rules.chat is None else about.chat


def _may_answer(about: About) -> bool:
    """Whether the user would see it, and nobody else. The answer to a button is shown to who pressed it."""
    return about.kind == "callback_query" or (about.is_private and about.kind in WRITTEN)
