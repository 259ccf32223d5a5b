"""Which bot a call is for: the limiter is told by the method that makes the request."""

from collections.abc import Callable
from typing import Any

from telegram import Bot

from tidegate.adapters.gate import Gate
from tidegate.errors import BadInputError
from tidegate.model import BotId


class KnownBots:
    """Tells the gate of each bot once."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._ids: dict[str, BotId] = {}  # by token: as many as there are bots

    def id_of(self, bot: Bot) -> BotId:
        """Raises BadInputError if its token is none."""
        if bot.token not in self._ids:
            self._ids[bot.token] = self._tell(bot)
        return self._ids[bot.token]

    def _tell(self, bot: Bot) -> BotId:
        if (url := api_url(bot)) is not None:
            return self._gate.add_bot(bot.token, api_url=url).id
        number = bot.token.partition(":")[0]
        if not number.isdecimal():
            raise BadInputError("that is not a bot's token: it looks like 123456:ABC-DEF…, from @BotFather")
        return BotId(int(number))


def bot_behind(callback: Callable[..., Any]) -> Bot:
    """The bot whose request this is: its limiter is given a bound method. Raises BadInputError."""
    bot = getattr(callback, "__self__", None)
    if not isinstance(bot, Bot):
        raise BadInputError("the limiter is for ExtBot: give it to Application.builder().rate_limiter(…)")
    return bot


def api_url(bot: Bot) -> str | None:
    """What stands before /bot<token>/<method>, or a pattern; None where the token is not in the address."""
    url = bot.base_url.removesuffix(f"/bot{bot.token}")
    if url != bot.base_url:
        return url
    return bot.base_url.replace(bot.token, "{token}") + "/{method}" if bot.token in bot.base_url else None
