"""A flow on aiogram: the whole bot, or a router in a bot of your own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiogram import Bot, Dispatcher, Router
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.dispatcher.event.bases import UNHANDLED, SkipHandler
from aiogram.fsm.storage.base import BaseStorage
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.types import CallbackQuery, Message, TelegramObject, Update
from aiogram.utils.token import TokenValidationError

from tidegate.adapters.aiogram.flow_storage import StorageFlowSessions
from tidegate.adapters.flow_bot import SORRY, FlowBot, FlowBotGate
from tidegate.errors import BadInputError, ClosedError
from tidegate.flows.events import Command
from tidegate.flows.executor.effect_runner import OnUnknown
from tidegate.flows.executor.polls import MakePoller
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowSessionStore
from tidegate.flows.telegram_updates import FlowReader, UserEvent, has_command, names_bot
from tidegate.polling.poller import Poller

NextHandler = Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]]


class FlowExecutor(FlowBot):
    """`run_polling()` is the whole bot. For a dispatcher of your own: `attach(dispatcher)`.

    Sessions, unsent replies, subscriptions and timers are kept in the gate's store, and survive a restart if
    that does. `batch_polling_config` holds `batch_check_fn` (keys → {key: value} of those that came true),
    `interval` and `batch_size`; without batches the function is asked for one key at a time. `pollers`: other
    pollers for the polls of these names, such as `partial(DeltaPoller, …)`. `work`: async functions of a
    WorkContext, tried `tries` times. `storage`: an FSM storage of aiogram, which holds the sessions if the
    gate's store is in memory; sessions that an earlier version kept in it go on. `lifetime`: seconds, instead
    of the flow's own. `restore=False`: subscriptions from before are not polled for until `restore()` is
    called. `sorry`: the reply when the flow itself fails, without formatting; a text, or a key of its texts.
    `on_unknown="park"`: a message that may or may not have arrived becomes a dead letter.
    """

    def __init__(
        self,
        flow: Flow,
        token: str,
        enable_batch_polling: bool = True,  # noqa: FBT001, FBT002  (users know it so)
        batch_polling_config: Mapping[str, Any] | None = None,
        *,
        gate: FlowBotGate | None = None,
        storage: BaseStorage | None = None,
        work: Mapping[str, WorkFunction] | None = None,
        pollers: Mapping[str, Poller | MakePoller] | None = None,
        lifetime: float | None = None,
        tries: int = WORK_TRIES,
        restore: bool = True,
        sorry: str = SORRY,
        on_unknown: OnUnknown = "resend",
        api_url: str | None = None,
        bot: Bot | None = None,
    ) -> None:
        self.bot = bot or _bot(token, api_url)
        self._storage = storage
        super().__init__(
            flow,
            gate=gate,
            work=work,
            pollers=pollers,
            batch_polling=batch_polling_config,
            in_batches=enable_batch_polling,
            lifetime=lifetime,
            tries=tries,
            restore=restore,
            sorry=sorry,
            on_unknown=on_unknown,
        )
        self._dispatcher: Dispatcher | None = None
        self.router = Router(name=f"flow {flow.name}")
        self.router.message.register(self._on_message)
        self.router.callback_query.register(self._on_press)
        self.router.startup.register(self._start)
        self.router.shutdown.register(self._stop)

    @property
    def bot_id(self) -> int:
        return self.bot.id

    # Running

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the whole bot, made at first use. Routers included before come first."""
        if self._dispatcher is None:
            self._dispatcher = Dispatcher()
        return self._dispatcher

    def attach(self, dispatcher: Dispatcher, **options: Any) -> None:  # noqa: ANN401  (those of gate.attach)
        """Let a dispatcher handle this flow, after its other routers. Attaches the gate to it too.

        Its updates are durable, unless the options say otherwise: a flow survives the death of its process.
        """
        if "inbox" not in options:
            options.setdefault("updates", "durable")
        self.gate.attach(dispatcher, self.bot, **options)
        if self.router.parent_router is None:
            dispatcher.include_router(self.router)
        self._dispatcher = dispatcher

    def run_polling(self, **options: Any) -> None:  # noqa: ANN401  (aiogram's)
        """Run the bot until Ctrl-C or SIGTERM."""
        asyncio.run(self.start_polling(**options))

    async def start_polling(self, **options: Any) -> None:  # noqa: ANN401  (aiogram's)
        if self.router.parent_router is None:
            self.attach(self.dispatcher)
        await self.dispatcher.start_polling(self.bot, **options)

    async def _start(self, dispatcher: Dispatcher) -> None:
        if not self.gate.is_open:
            if self.gate.core.attached_library is None:
                raise ClosedError(
                    "the flow's gate does not run: call executor.attach(dispatcher), or open it yourself"
                )
            return  # the dispatcher is to stop before it has begun
        if self.gate.core.token_of(self.bot.id) is None:
            self.gate.attach(None, self.bot)
        if self._on_unhandled_message not in dispatcher.message.outer_middleware:
            dispatcher.message.outer_middleware.register(self._on_unhandled_message)
        await self._run(lambda store: self._with_storage(store, dispatcher))

    async def _stop(self) -> None:
        await self._end()

    def _with_storage(self, store: FlowSessionStore, dispatcher: Dispatcher) -> FlowSessionStore:
        """Return the gate's store, and beside it the FSM storage in which earlier versions kept sessions."""
        storage = self._storage or self._former_storage(dispatcher)
        # aiogram's own storage in memory never forgets a user: it is used only if it was given.
        if type(storage) is MemoryStorage and self._storage is None:
            return store
        return StorageFlowSessions(store, storage, self.gate.clock)

    def _former_storage(self, dispatcher: Dispatcher) -> BaseStorage:
        try:
            storage: BaseStorage = self.gate.fsm_storage()
        except BadInputError:  # no file: the dispatcher has its own, or one in Redis since it was attached
            return dispatcher.storage
        return storage

    # Events from users

    async def _on_message(self, message: Message, bot: Bot, event_update: Update) -> None:
        found = await self._read(message, bot, event_update)
        if found is None or not await self._take(found, awaited_only=not found.is_addressed):
            raise SkipHandler  # it is left to other routers

    async def _on_unhandled_message(
        self, handler: NextHandler, message: TelegramObject, data: dict[str, Any]
    ) -> object:
        """Around all routers: a command that none of them took is unexpected input of a session."""
        result = await handler(message, data)
        if result is not UNHANDLED or not isinstance(message, Message):
            return result
        found = await self._read(message, data["bot"], data["event_update"])
        if found is None or not found.is_private or not isinstance(found.event, Command):
            return result
        if has_command(self.flow, found.event.name):
            return result
        return None if await self._take(found) else result

    async def _on_press(self, query: CallbackQuery, bot: Bot, event_update: Update) -> None:
        reader = FlowReader(self.flow, bot.id)
        found = reader.press(_plain(query), event_update.update_id, self.gate.clock.now())
        if found is None or not await self._take(found):
            raise SkipHandler

    async def _read(self, message: Message, bot: Bot, update: Update) -> UserEvent | None:
        username = (await bot.me()).username if names_bot(message.text) else None
        reader = FlowReader(self.flow, bot.id, username or "")
        return reader.message(_plain(message), update.update_id, self.gate.clock.now())


def _plain(event: TelegramObject) -> dict[str, Any]:
    """As Telegram sent it: fields that were not sent have defaults of aiogram's, not all of them JSON."""
    return event.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def _bot(token: str, api_url: str | None) -> Bot:
    session = None if api_url is None else AiohttpSession(api=TelegramAPIServer.from_base(api_url))
    try:
        return Bot(token, session=session)
    except TokenValidationError:
        raise BadInputError("that is no bot token: it looks like 123456:ABC…, from @BotFather") from None


__all__ = ["FlowExecutor"]
