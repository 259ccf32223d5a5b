"""The chats that have written lately, as far as updates pass the gateway: calls to them are replies."""

from collections import OrderedDict
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.inbound.updates import describe_update
from tidegate.model import BotId, Priority

REPLY_WITHIN: Final = 60.0  # seconds after an update in which a call to its chat is a reply
MOST_CHATS: Final = 10_000


class ReplyChats:
    """Bounded: the chats that have been quiet for longest are forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: OrderedDict[tuple[BotId, int], float] = OrderedDict()

    def note(self, bot: BotId, update: object) -> None:
        """An update of a bot is handed to its client."""
        if not isinstance(update, dict):
            return
        info = describe_update(update)
        for chat in {info.chat, info.user} - {None}:
            self._heard[bot, chat] = self._clock.monotonic()  # type: ignore[index]  # None is left out
            self._heard.move_to_end((bot, chat))  # type: ignore[arg-type]
        while len(self._heard) > MOST_CHATS:
            self._heard.popitem(last=False)

    def priority(self, bot: BotId, chat_id: Any) -> Priority:  # noqa: ANN401  (what a client has sent)
        """Return high for a reply, else normal."""
        if isinstance(chat_id, str) and chat_id.lstrip("-").isdecimal():
            chat_id = int(chat_id)
        if not isinstance(chat_id, int):
            return Priority.NORMAL
        since = self._clock.monotonic() - self._heard.get((bot, chat_id), float("-inf"))
        return Priority.HIGH if since < REPLY_WITHIN else Priority.NORMAL
