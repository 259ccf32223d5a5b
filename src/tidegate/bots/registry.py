"""The bots that a gate can send for: those added in this process and those registered in its store."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, overload

import msgspec

from tidegate.bots.port import BotRecord, BotStore
from tidegate.clock import Clock
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import BotApiTransport
from tidegate.errors import BadInputError, StoreAwayError, TidegateError, WrongKeyError
from tidegate.model import BotId
from tidegate.scrubber import contains_token

log = logging.getLogger("tidegate")

TELEGRAM: Final = "https://api.telegram.org"
LOOK_EVERY: Final = 5.0  # seconds, at what other processes have registered
_TOKEN = re.compile(r"(\d{1,15}):[\w-]{1,80}", re.ASCII)


class Bot(msgspec.Struct, frozen=True):
    """A bot that was added to a gate. Holds no token."""

    id: BotId

    def __str__(self) -> str:
        return f"{self.id}:…"


class HasBotId(Protocol):
    """A bot of any library, by its number."""

    @property
    def id(self) -> int: ...


AnyBot = Bot | HasBotId | int


class BotInfo(msgspec.Struct, frozen=True):
    """A bot that a gate can send for, without its token."""

    id: BotId
    api_url: str
    stored: bool  # registered in the store, for every process that opens it


class BotRegistry:
    """`open` is shared with whoever sends: the bots whose tokens are at hand."""

    def __init__(
        self, opened: dict[BotId, BotAccess], shelf: BotStore | None, added: Mapping[BotId, BotAccess]
    ) -> None:
        self._open = opened
        self._open |= added
        self._shelf = shelf
        self._stored: dict[BotId, BotRecord] = {}
        self._unsealed: dict[BotId, BotRecord] = {}  # what their open tokens come from
        self._added = set(added)  # in this process: what the store says of their tokens does not count here
        self._without_address: set[BotId] = set()  # those of them that are where the store says
        self._elsewhere: frozenset[BotId] = frozenset()  # for which other processes deliver
        self._sends = False  # or did: it needs the tokens
        self._said = ""  # last, in the log
        self._unreadable: dict[BotId, BotRecord] = {}  # those that were told

    def add(self, token: str, api_url: str | None, wire: BotApiTransport | None = None) -> Bot:
        """Without an address, it is that of the registered bot, or else Telegram's."""
        bot, access = self._checked(token, api_url, wire)
        self._open[bot.id] = access
        self._added.add(bot.id)
        if api_url is None:
            self._without_address.add(bot.id)
        else:
            self._without_address.discard(bot.id)
        return bot

    def added(self) -> dict[BotId, BotAccess]:
        """The bots that this process has added."""
        return {bot: self._open[bot] for bot in self._added if bot in self._open}

    async def register(self, token: str, api_url: str | None) -> Bot:
        """Likewise. A bot that this process has added at an address of its own stays there."""
        bot, access = self._checked(token, api_url)
        if api_url is None and (known := self._open.get(bot.id)) is not None:
            access = msgspec.structs.replace(access, api_url=known.api_url)
        if self._shelf is not None:
            await self._shelf.put(bot.id, access.token, access.api_url)
            await self.load()
        self._open[bot.id] = access
        return bot

    async def remove(self, bot: AnyBot) -> bool:
        bot_id = BotId(bot if isinstance(bot, int) else bot.id)
        known = self._open.pop(bot_id, None) is not None
        self._added.discard(bot_id)
        stored = self._shelf is not None and await self._shelf.remove(bot_id)
        self._stored.pop(bot_id, None)
        self._unsealed.pop(bot_id, None)
        return known or stored

    def know_elsewhere(self, bots: Iterable[BotId]) -> None:
        """Accept messages for bots whose tokens only other processes have: those deliver them."""
        self._elsewhere = frozenset(bots)

    def all(self) -> list[BotInfo]:
        urls = {bot.id: bot.api_url for bot in self._stored.values()}
        urls |= {bot: access.api_url for bot, access in self._open.items()}
        return [BotInfo(bot, url, bot in self._stored) for bot, url in sorted(urls.items())]

    async def rotate(self) -> int:
        return await self._shelf.rotate() if self._shelf is not None else 0

    async def load(self) -> None:
        """Read what is registered. Tokens stay sealed until somebody sends."""
        if self._shelf is None:
            return
        before, self._stored = self._stored, {bot.id: bot for bot in await self._shelf.all()}
        for bot in before.keys() - self._stored.keys() - self._added:
            self._open.pop(bot, None)
            self._unsealed.pop(bot, None)
        for bot in self._without_address & self._stored.keys() & self._open.keys():
            self._open[bot] = msgspec.structs.replace(self._open[bot], api_url=self._stored[bot].api_url)
        if self._sends:
            await self._unseal()

    async def look(self) -> None:
        """As `load`, and what stands in its way is only told: it does not concern whoever asks."""
        try:
            await self.load()
        except StoreAwayError:
            pass  # which others tell
        except TidegateError as error:
            if str(error) != self._said:
                log.warning("what is registered cannot be read: %s", error)
            self._said = str(error)

    async def follow(self, clock: Clock, is_open: Callable[[], bool]) -> None:
        """Look now and then: for a store that does not tell when another process has changed it."""
        while is_open():
            await clock.sleep(LOOK_EVERY)
            if is_open():  # else the driver has kept a cancellation to itself
                await self.look()

    async def unseal(self) -> None:
        """Open the tokens of the store, if nobody did. Raises WrongKeyError."""
        self._sends = True
        if self._stored.keys() - self._open.keys():
            await self._unseal()

    async def _unseal(self) -> None:
        """Raises WrongKeyError if no bot is left to send for; else one that cannot be opened is only told."""
        failure: WrongKeyError | None = None
        for bot in list(self._stored.values()):
            known = bot.id in self._open and self._unsealed.get(bot.id) == bot
            if self._shelf is not None and bot.id not in self._added and not known:
                try:
                    access = BotAccess(await self._shelf.open(bot), bot.api_url)
                except WrongKeyError as error:
                    failure = error
                    self._tell_unreadable(bot, error)
                    continue
                if bot.id in self._stored:  # still: it may have been removed meanwhile
                    self._open[bot.id], self._unsealed[bot.id] = access, bot
        if failure is not None and not self._open:
            raise failure

    def _tell_unreadable(self, bot: BotRecord, error: WrongKeyError) -> None:
        """Once for each token: the bot's messages wait, and other bots go on."""
        if self._unreadable.get(bot.id) != bot and len(self._stored) > 1:
            log.error("bot %s is left out, its stored token is unreadable: %s", bot.id, error)
        self._unreadable = {other: it for other, it in self._unreadable.items() if other in self._stored}
        self._unreadable[bot.id] = bot

    def _checked(
        self, token: str, api_url: str | None, wire: BotApiTransport | None = None
    ) -> tuple[Bot, BotAccess]:
        bot, access = _checked_access(token, TELEGRAM if api_url is None else api_url, wire)
        if api_url is None and bot.id in self._stored:
            access = msgspec.structs.replace(access, api_url=self._stored[bot.id].api_url)
        return bot, access

    def id_of(self, bot: AnyBot | None) -> BotId:
        """The bot that is meant. Raises BadInputError if it is not known, or neither said nor alone."""
        known = self._open.keys() | self._stored.keys() | self._elsewhere
        if bot is None:
            if len(known) != 1:
                count = "no bot was added" if not known else f"{len(known)} bots were added"
                raise BadInputError(f"{count}: say which one with bot=…, from add_bot")
            return next(iter(known))
        bot_id = bot_number(bot)
        if bot_id not in known:
            raise BadInputError(f"bot {bot_id} is not known: add it with add_bot")
        return bot_id


@overload
def bot_number(bot: AnyBot) -> BotId: ...


@overload
def bot_number(bot: AnyBot | None) -> BotId | None: ...


def bot_number(bot: AnyBot | None) -> BotId | None:
    """Return the number of a bot, whether it is known here or not. Raises BadInputError."""
    if bot is None:
        return None
    number = bot if isinstance(bot, int) else getattr(bot, "id", None)  # a bot of a library has one too
    if not isinstance(number, int):
        raise BadInputError("bot must be what add_bot gave, or the bot's number")  # it may be a token
    return BotId(number)


def _checked_access(token: str, api_url: str, wire: BotApiTransport | None = None) -> tuple[Bot, BotAccess]:
    match = _TOKEN.fullmatch(str(token))  # an unset variable gives None
    if match is None:
        raise BadInputError("that is not a bot's token: it looks like 123456:ABC-DEF…, from @BotFather")
    if not api_url.startswith(("http://", "https://")):
        raise BadInputError("api_url must be an http(s) address, such as https://api.telegram.org")
    if token in api_url or contains_token(api_url):  # it is stored and shown as it is
        raise BadInputError("api_url contains a token: leave it out, or write {token} in its place")
    return Bot(BotId(int(match[1]))), BotAccess(token, api_url.rstrip("/"), wire)
