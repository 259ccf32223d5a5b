"""The facade, and the one place where stores are chosen and parts are put together."""

import asyncio
import inspect
import itertools
import logging
import re
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.botapi import BotApi
from tidegate.delivery.direct import DirectCalls, error_for
from tidegate.delivery.policy import RetryPolicy
from tidegate.delivery.sender import BotAccess, Sender
from tidegate.delivery.wire import Wire
from tidegate.delivery.worker import CONCURRENCY, Worker
from tidegate.errors import (
    BadInputError,
    ClosedError,
    LimitedError,
    NotTheSenderError,
)
from tidegate.keys import Keys
from tidegate.model import (
    BotId,
    ChatId,
    Dead,
    Delivered,
    Message,
    NotSent,
    Outcome,
    Record,
    State,
    TicketId,
    Unknown,
)
from tidegate.outbox.admission import check_chat, check_method, compose
from tidegate.outbox.base import Outbox, Stats
from tidegate.outbox.memory import MemoryOutbox
from tidegate.outbox.sqlite.bots import BotShelf, StoredBot
from tidegate.outbox.sqlite.store import SqliteOutbox
from tidegate.pacing.rules import Rules, cost_of, family_of
from tidegate.settings import Settings
from tidegate.tickets import LiveTicket, Receipt, receipt_for

log = logging.getLogger("tidegate")

TELEGRAM: Final = "https://api.telegram.org"
CHUNK: Final = 250  # messages put in one step
HOOKS_AT_ONCE: Final = 20
HOOKS_GRACE: Final = 10.0  # seconds to wait for hooks when the gate closes
_TOKEN = re.compile(r"(\d{1,15}):[\w-]{1,80}", re.ASCII)

OnDelivered = Callable[[Message, Any], Awaitable[None]]
OnDead = Callable[[Message, str], Awaitable[None]]
Hook = TypeVar("Hook", OnDelivered, OnDead)
Fields = Mapping[str, Any]


class Bot(msgspec.Struct, frozen=True):
    """A bot that was added to a gate. Holds no token."""

    id: BotId

    def __str__(self) -> str:
        return f"{self.id}:…"


class BotInfo(msgspec.Struct, frozen=True):
    """A bot that a gate can send for, without its token."""

    id: BotId
    api_url: str
    stored: bool  # registered in the store, for every process that opens it


class Tidegate:
    """Stands between bots and Telegram. `async with` it; nothing runs before.

    `store`: a file (TIDEGATE_STORE or `tidegate.db` if not given), or `memory://`. Limits and retries come
    from `rules` and the environment (`TIDEGATE_BOT_RATE` …).
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        rules: Rules | None = None,
        clock: Clock | None = None,
        wire: Wire | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings.read()
        self._clock = clock or Clock()
        self._shelf: BotShelf | None = None
        self._stored: dict[BotId, StoredBot] = {}
        self._outbox = self._choose_store(
            str(store or self._settings.tidegate_store), rules or self._settings.rules()
        )
        policy = RetryPolicy(self._settings.telegram_base_delay, self._settings.telegram_max_delay)
        wire = wire or BotApi(self._clock, timeout=self._settings.telegram_timeout)
        self._sender = Sender(wire, self._clock, policy=policy)
        self._sender.look_for_bots = self._load_bots
        self._direct = DirectCalls(
            self._outbox, self._sender, self._clock, self._settings.telegram_max_retries
        )
        self._ids = _ids()
        self._on_delivered: list[OnDelivered] = []
        self._on_dead: list[OnDead] = []
        self._ended: asyncio.Queue[Record] = asyncio.Queue()
        self._telling: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None  # held until it is done
        self._was_open = False
        self._sends = False  # or did: it needs the tokens

    def _choose_store(self, store: str, rules: Rules) -> Outbox:
        if store == "memory://":
            return MemoryOutbox(self._clock, rules, on_end=self._note_end)
        if "://" in store and not store.startswith("sqlite:///"):
            kind = store.partition("://")[0]  # the rest may hold a password
            raise BadInputError(f"a store of the kind {kind!r} is not known: give a file, or memory://")
        path = Path(store.removeprefix("sqlite:///"))
        outbox = SqliteOutbox(path, self._clock, rules, on_end=self._note_end, on_bots=self._load_bots_soon)
        self._shelf = BotShelf(outbox.file, Keys.of(self._settings.tidegate_key, path))
        return outbox

    async def __aenter__(self) -> Self:
        if self._was_open:
            raise ClosedError("a gate is opened once: make another one")
        self._was_open = True
        await self._outbox.open()
        try:
            await self._load_bots()
        except BaseException:
            await self._outbox.close()
            raise
        self._telling = asyncio.create_task(self._tell(), name="tidegate: hooks")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._telling is not None:
            try:
                async with self._clock.timeout(HOOKS_GRACE):
                    await self._ended.join()
            except TimeoutError:
                log.warning("some hooks did not end within %s s and are cancelled", HOOKS_GRACE)
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
            self._telling = None
        waiting = self._outbox.stats().waiting
        if waiting and isinstance(self._outbox, MemoryOutbox):
            log.warning("%s messages were waiting and are gone: the store is in memory", waiting)
        await self._sender.close()
        await self._outbox.close()

    # --- bots ---

    def add_bot(self, token: str, *, api_url: str = TELEGRAM) -> Bot:
        """Let this gate send for a bot. The token stays here; it is not in any text or record."""
        bot, access = _checked_access(token, api_url)
        self._sender.bots[bot.id] = access
        return bot

    async def register_bot(self, token: str, *, api_url: str = TELEGRAM) -> Bot:
        """As `add_bot`, and kept in the store, encrypted, for every process that opens it."""
        self._check_open()
        bot, access = _checked_access(token, api_url)
        if self._shelf is not None:
            await self._shelf.put(bot.id, access.token, access.api_url)
            await self._load_bots()
        self._sender.bots[bot.id] = access
        return bot

    async def remove_bot(self, bot: Bot | int) -> bool:
        """Forget a bot's token, here and in the store; whether it was known."""
        self._check_open()
        bot_id = BotId(bot.id if isinstance(bot, Bot) else bot)
        known = self._sender.bots.pop(bot_id, None) is not None
        stored = self._shelf is not None and await self._shelf.remove(bot_id)
        self._stored.pop(bot_id, None)
        return known or stored

    def bots(self) -> list[BotInfo]:
        """The bots that were added here, and those registered in the store."""
        urls = {bot.id: bot.api_url for bot in self._stored.values()}
        urls |= {bot: access.api_url for bot, access in self._sender.bots.items()}
        return [BotInfo(bot, url, bot in self._stored) for bot, url in sorted(urls.items())]

    async def rotate_tokens(self) -> int:
        """Encrypt every stored token anew with the newest key, all or none; returns how many."""
        self._check_open()
        return await self._shelf.rotate() if self._shelf is not None else 0

    async def _load_bots(self) -> None:
        """Their tokens stay sealed until somebody sends."""
        if self._shelf is None:
            return
        before, self._stored = self._stored, {bot.id: bot for bot in await self._shelf.all()}
        for bot in before.keys() - self._stored.keys():
            self._sender.bots.pop(bot, None)
        if self._sends:
            await self._open_tokens()

    def _load_bots_soon(self) -> None:
        """Another process has changed what is registered."""
        self._loading = asyncio.create_task(self._load_bots(), name="tidegate: bots")

    async def _open_tokens(self) -> None:
        """Raises WrongKeyError."""
        for bot in self._stored.values():
            if self._shelf is not None:
                self._sender.bots[bot.id] = BotAccess(await self._shelf.open(bot), bot.api_url)

    async def _become_sender(self) -> None:
        await self._outbox.start_sending()
        await self._unseal()

    async def _unseal(self) -> None:
        """Open the tokens of the store, if nobody did. Raises WrongKeyError."""
        self._sends = True
        if self._stored.keys() - self._sender.bots.keys():
            await self._open_tokens()

    def _bot_id(self, bot: Bot | int | None) -> BotId:
        known = self._sender.bots.keys() | self._stored.keys()
        if bot is None:
            if len(known) != 1:
                count = "no bot was added" if not known else f"{len(known)} bots were added"
                raise BadInputError(f"{count}: say which one with bot=…, from add_bot")
            return next(iter(known))
        if not isinstance(bot, Bot | int):
            raise BadInputError("bot must be what add_bot gave, or the bot's number")  # it may be a token
        bot_id = BotId(bot.id if isinstance(bot, Bot) else bot)
        if bot_id not in known:
            raise BadInputError(f"bot {bot_id} is not known: add it with add_bot")
        return bot_id

    # --- sending ---

    async def send(self, *, bot: Bot | int | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401  (Telegram's)
        """Accept one message; what this returned for is not lost, within what the store promises.

        `chat_id`, `text` and every other parameter as Telegram spells them; `method` if it is not
        sendMessage; `priority`, `urgent`, `not_before`, `expires_at`, `dedup_key`, `coalesce_key`,
        `max_attempts`, `on_unknown` as in `tidegate.model.Message`.
        """
        return (await self.send_many([fields], bot=bot))[0]

    async def send_many(
        self,
        items: Iterable[Fields] | AsyncIterable[Fields],
        *,
        bot: Bot | int | None = None,
        **shared: Any,  # noqa: ANN401
    ) -> list[LiveTicket]:
        """Accept many messages, some hundreds in a step. `shared` fields go to each.

        Bad input stores nothing of its step; what earlier steps accepted stays.
        """
        self._check_open()
        bot_id = self._bot_id(bot)
        tickets: list[LiveTicket] = []
        chunk: list[Message] = []
        async for fields in _each(items):
            if not isinstance(fields, Mapping):
                kind = type(fields).__name__
                raise BadInputError(
                    f"each message is a mapping of fields, such as {{'chat_id': 1}}: got {kind}"
                )
            chunk.append(
                compose(next(self._ids), bot_id, {**self._defaults(), **shared, **fields}, self._clock.now())
            )
            if len(chunk) == CHUNK:
                tickets += await self._put(chunk)
                chunk = []
                await self._clock.sleep(0)  # let others run: an audience may be large
        return tickets + await self._put(chunk)

    async def _put(self, messages: list[Message]) -> list[LiveTicket]:
        placed = await self._outbox.put(messages)
        return [LiveTicket(ticket.id, self._outbox, self._clock, fresh=ticket.fresh) for ticket in placed]

    def _defaults(self) -> Fields:
        return {"max_attempts": self._settings.telegram_max_retries}

    async def call(
        self,
        method: str,
        params: Fields | None = None,
        *,
        bot: Bot | int | None = None,
        max_wait: float | None = None,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call now, paced with everything else at high priority, not queued.

        Waits its turn, `max_wait` or TELEGRAM_RATE_LIMIT_WAIT seconds at most (then LimitedError). Retries
        what surely did not happen; raises OutcomeUnknownError for what may have, DeadError for what cannot.
        """
        self._check_open()
        if max_wait is None:
            max_wait = self._settings.telegram_rate_limit_wait
        await self._unseal()
        checked = dict(params or {})
        if checked.get("chat_id") is not None:
            checked["chat_id"] = check_chat(checked["chat_id"])
        return await self._direct.call(self._bot_id(bot), check_method(method), checked, max_wait=max_wait)

    async def send_or_queue(self, *, bot: Bot | int | None = None, **fields: Any) -> Receipt | LiveTicket:  # noqa: ANN401
        """Send at once if the limits allow, queue if they do not. A receipt, or a ticket."""
        self._check_open()
        bot_id = self._bot_id(bot)
        message = compose(next(self._ids), bot_id, {**self._defaults(), **fields}, self._clock.now())
        due = message.not_before is None or message.not_before <= self._clock.now()
        remembered = message.dedup_key is not None or message.coalesce_key is not None  # by the store alone
        if (
            due
            and not remembered
            and self.can_send(message.chat_id, bot=bot_id, method=message.method, params=message.params)
        ):
            outcome = await self._try_now(message)
            if isinstance(outcome, Delivered):
                return receipt_for(outcome.result)
            parks = isinstance(outcome, Unknown) and message.on_unknown == "park"
            if isinstance(outcome, Dead) or parks:
                raise error_for(outcome, message.method, message.chat_id)
        return (await self._put([message]))[0]

    async def _try_now(self, message: Message) -> Outcome:
        try:
            await self._become_sender()
            params = {"chat_id": message.chat_id, **message.params}
            return await self._direct.once(message.bot, message.method, params)
        except LimitedError:
            return NotSent("someone was faster")
        except NotTheSenderError:
            return NotSent("another process sends")

    def can_send(
        self,
        chat_id: ChatId,
        max_wait: float = 0.0,
        *,
        bot: Bot | int | None = None,
        method: str = "sendMessage",
        params: Fields | None = None,
    ) -> bool:
        """Whether a call to this chat could be made within `max_wait` seconds. Takes nothing."""
        family = family_of(method)
        cost = 0 if family == "free" else cost_of(method, params or {})
        return self._outbox.wait_for(self._bot_id(bot), check_chat(chat_id), family, cost) <= max_wait

    # --- delivering ---

    def worker(
        self, *, concurrency: int = CONCURRENCY, grace: float = 10.0
    ) -> AbstractAsyncContextManager[object]:
        """`async with` it to deliver in this process while the body runs."""
        self._check_open()
        return self._deliver(
            Worker(self._outbox, self._sender, self._clock, concurrency=concurrency, grace=grace)
        )

    @asynccontextmanager
    async def _deliver(self, worker: Worker) -> AsyncIterator[object]:
        await self._become_sender()
        async with worker:
            yield worker

    async def drained(self, bot: Bot | int | None = None) -> None:
        """Wait until nothing waits and nothing is being sent, for one bot or for all."""
        self._check_open()
        await self._outbox.drained(self._bot_id(bot) if bot is not None else None)

    def on_delivered(self, hook: OnDelivered) -> OnDelivered:
        """`async def hook(message, result)` is told of each delivery."""
        self._on_delivered.append(_checked(hook))
        return hook

    def on_dead(self, hook: OnDead) -> OnDead:
        """`async def hook(message, reason)` is told of each message that died, to mark a user as gone."""
        self._on_dead.append(_checked(hook))
        return hook

    # --- watching ---

    @property
    def outbox(self) -> Outbox:
        """The store itself: find, why, pause, resume, cancel, dead letters."""
        return self._outbox

    def stats(self) -> Stats:
        """How many messages are where."""
        return self._outbox.stats()

    # --- inside ---

    def _check_open(self) -> None:
        if self._telling is None:
            raise ClosedError("the gate is not open: use it inside `async with gate:`")

    def _note_end(self, record: Record) -> None:
        if (record.state == State.DELIVERED and self._on_delivered) or (
            record.state == State.DEAD and self._on_dead
        ):
            self._ended.put_nowait(record)

    async def _tell(self) -> None:
        """Call the hooks, several at a time: a slow one holds up neither delivery nor many others."""
        free = asyncio.Semaphore(HOOKS_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                record = await self._ended.get()
                await free.acquire()
                group.create_task(self._tell_one(record, free))

    async def _tell_one(self, record: Record, free: asyncio.Semaphore) -> None:
        try:
            await self._call_hooks(record)
        finally:
            free.release()
            self._ended.task_done()

    async def _call_hooks(self, record: Record) -> None:
        told: list[Awaitable[None]] = (
            [hook(record.message, record.result) for hook in self._on_delivered]
            if record.state == State.DELIVERED
            else [hook(record.message, record.reason or "") for hook in self._on_dead]
        )
        for error in await asyncio.gather(*told, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("a hook failed for message %s", record.message.id, exc_info=error)


def _ids() -> Iterator[TicketId]:
    """Never the same in two processes; rising, so that neighbours in time are neighbours in an index."""
    prefix = secrets.token_hex(6)
    return (TicketId(f"{prefix}-{number:08x}") for number in itertools.count(1))


def _checked_access(token: str, api_url: str) -> tuple[Bot, BotAccess]:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise BadInputError("that is not a bot's token: it looks like 123456:ABC-DEF…, from @BotFather")
    if not api_url.startswith(("http://", "https://")):
        raise BadInputError("api_url must be an http(s) address, such as https://api.telegram.org")
    return Bot(BotId(int(match[1]))), BotAccess(token, api_url.rstrip("/"))


def _checked(hook: Hook) -> Hook:
    if not inspect.iscoroutinefunction(hook):
        raise BadInputError("a hook must be an async function: async def hook(message, …)")
    return hook


async def _each(items: Iterable[Fields] | AsyncIterable[Fields]) -> AsyncIterable[Fields]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, Iterable):
        for item in items:
            yield item
    else:
        raise BadInputError(f"messages come from an iterable, or an async one: got {type(items).__name__}")
