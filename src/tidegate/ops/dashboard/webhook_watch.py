"""State of the webhooks of bots that somebody looks at. The process that delivers asks Telegram for it."""

import asyncio
import math
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.errors import TidegateError
from tidegate.model import BotId
from tidegate.ops.webhook_state import WebhookReport, webhook_report

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

ASK_EVERY: Final = 30.0  # seconds, while somebody looks
PATIENCE: Final = 10.0  # seconds that an answer may take, retries included


class WebhookReading(msgspec.Struct, frozen=True):
    """Result of a question to Telegram: a report, or why there is none."""

    at: float
    report: WebhookReport | None
    trouble: str = ""


class WebhookWatch:
    """Asks in the background, so that no page waits for Telegram."""

    def __init__(self, gate: "Tidegate") -> None:
        self._gate = gate
        self._answers: dict[BotId, WebhookReading] = {}
        self._asked_at: dict[BotId, float] = {}  # monotonic
        self._wanted: asyncio.Queue[BotId] = asyncio.Queue()

    def asks_for(self, bot: BotId) -> bool:
        """Return whether this process may ask: one that does not deliver would take another's place by it."""
        return bool(self._gate.health().vitals) and bot in self._gate.core.sender.bots

    def look(self, bot: BotId) -> WebhookReading | None:
        """Return the last answer, None until there is one, and have Telegram asked again if that is old."""
        now = self._gate.clock.monotonic()
        if now - self._asked_at.get(bot, -math.inf) >= ASK_EVERY and self.asks_for(bot):
            self._asked_at[bot] = now
            self._wanted.put_nowait(bot)
        return self._answers.get(bot)

    async def ask_often(self) -> None:
        """Ask for whatever is looked at, for ever."""
        while True:
            bot = await self._wanted.get()
            self._answers[bot] = await self._ask(bot)

    async def _ask(self, bot: BotId) -> WebhookReading:
        gate, access = self._gate, self._gate.core.sender.bots.get(bot)
        if access is None:  # it was removed in this moment
            return WebhookReading(gate.clock.now(), None, f"bot {bot} is not known here any more")
        try:
            async with gate.clock.timeout(PATIENCE):
                info = await gate.call("getWebhookInfo", bot=bot)
        except TimeoutError:
            return WebhookReading(gate.clock.now(), None, f"no answer within {PATIENCE:.0f} s")
        except TidegateError as error:
            return WebhookReading(gate.clock.now(), None, str(error))
        return WebhookReading(gate.clock.now(), webhook_report(bot, access, info, gate.clock.now()))
