"""A flow on aiogram: the whole bot, or a router in a bot of your own."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import msgspec
from aiogram import Bot, Dispatcher, Router
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.dispatcher.event.bases import UNHANDLED, SkipHandler
from aiogram.enums import ChatType
from aiogram.fsm.storage.base import BaseStorage
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.types import CallbackQuery, Message, TelegramObject, Update
from aiogram.utils.token import TokenValidationError

from tidegate.adapters.aiogram.flow_events import has_command, message_event, press_event, session_key_of
from tidegate.adapters.aiogram.flow_storage import StorageFlowSessions
from tidegate.errors import BadInputError, ClosedError
from tidegate.failure import describe_error
from tidegate.flows.events import ButtonPress, Command, FlowEvent
from tidegate.flows.executor.effect_runner import OnUnknown
from tidegate.flows.executor.executor import FlowRestorer, FlowRunner
from tidegate.flows.executor.polls import MakePoller
from tidegate.flows.executor.stats import FlowStats
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.port import FlowGate, FlowSessionStore, SessionKey
from tidegate.handler_run import mark_repeatable
from tidegate.polling.poller import Poller
from tidegate.polling.restorer import (
    RESTORE_EVERY,
    OnProgress,
    RestoreResult,
    SubscriptionSource,
    show,
)

log = logging.getLogger("tidegate.flows")

NextHandler = Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]]
SORRY: Final = "Sorry, something went wrong. Please try again later."


class FlowStore(Protocol):
    def flow_sessions(self, flow: str) -> FlowSessionStore:
        """The sessions of the flow with this name; usable until the gate is closed."""
        ...


class FlowBotCore(Protocol):
    """The part of the gate's core that a flow's bot uses."""

    @property
    def store(self) -> FlowStore: ...

    @property
    def attached_library(self) -> object | None:
        """The dispatchers that are attached, if any."""

    def token_of(self, bot: int) -> str | None: ...


class FlowBotGate(FlowGate, Protocol):
    """The part of `Tidegate` that a flow's bot uses."""

    @property
    def is_open(self) -> bool: ...

    @property
    def core(self) -> FlowBotCore: ...

    @property
    def attach(self) -> Callable[..., None]:
        """Attach to a dispatcher and its bots."""
        ...

    def fsm_storage(self) -> BaseStorage:
        """The conversations in the gate's file. Raises BadInputError if it has none."""
        ...


def default_gate() -> FlowBotGate:
    """A gate on the store of the environment. The facade is a layer above, so it is imported here."""
    return cast("FlowBotGate", importlib.import_module("tidegate").Tidegate())


class FlowExecutor:
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
        self.gate = gate if gate is not None else default_gate()
        self.flow = flow if lifetime is None else msgspec.structs.replace(flow, lifetime=lifetime)
        self._storage = storage
        self._memory: FlowSessionStore | None = None
        self._sorry = sorry
        self._executor = FlowRunner(
            self.flow,
            self.gate,
            work=work,
            pollers=pollers,
            batch_polling=batch_polling_config,
            in_batches=enable_batch_polling,
            restore=restore,
            tries=tries,
            on_unknown=on_unknown,
        )
        self._dispatcher: Dispatcher | None = None
        self.router = Router(name=f"flow {flow.name}")
        self.router.message.register(self._on_message)
        self.router.callback_query.register(self._on_press)
        self.router.startup.register(self._start)
        self.router.shutdown.register(self._executor.stop)

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
        await self._executor.start(self._session_store(dispatcher))

    def _session_store(self, dispatcher: Dispatcher) -> FlowSessionStore:
        """The gate's store, and beside it the FSM storage in which earlier versions kept sessions."""
        store = self.gate.core.store.flow_sessions(self.flow.name)
        if not store.is_durable:  # one store for as long as this executor lives
            self._memory = store = self._memory or store
        storage = self._storage or self._former_storage(dispatcher)
        # aiogram's own storage in memory never forgets a user: it is used only if it was given.
        if type(storage) is MemoryStorage and self._storage is None:
            return store
        return StorageFlowSessions(store, storage, self.gate.clock)

    def _former_storage(self, dispatcher: Dispatcher) -> BaseStorage:
        try:
            return self.gate.fsm_storage()
        except BadInputError:  # no file: the dispatcher has its own, or one in Redis since it was attached
            return dispatcher.storage

    # Events from users

    async def _on_message(self, message: Message, bot: Bot, event_update: Update) -> None:
        event = await message_event(message, bot, event_update.update_id, self.flow, self.gate.clock.now())
        if event is None or message.from_user is None:
            raise SkipHandler
        key = session_key_of(message, message.from_user, bot)
        await self._handle(key, event, awaited_only=not self._is_addressed(message, event))

    def _is_addressed(self, message: Message, event: FlowEvent) -> bool:
        """In a group people also talk to each other, and a command may be another handler's."""
        if isinstance(event, Command):
            return has_command(self.flow, event.name)
        return message.chat.type == ChatType.PRIVATE

    async def _on_unhandled_message(
        self, handler: NextHandler, message: TelegramObject, data: dict[str, Any]
    ) -> object:
        """Around all routers: a command that none of them took is unexpected input of a session."""
        result = await handler(message, data)
        if (
            result is not UNHANDLED
            or not isinstance(message, Message)
            or message.chat.type != ChatType.PRIVATE
        ):
            return result
        bot, number = data["bot"], data["event_update"].update_id
        event = await message_event(message, bot, number, self.flow, self.gate.clock.now())
        if not isinstance(event, Command) or message.from_user is None or has_command(self.flow, event.name):
            return result
        with suppress(SkipHandler):  # there is no session
            await self._handle(session_key_of(message, message.from_user, bot), event)
            return None
        return result

    async def _on_press(self, query: CallbackQuery, bot: Bot, event_update: Update) -> None:
        press = press_event(query, event_update.update_id, self.flow, self.gate.clock.now())
        if press is None or query.message is None:
            raise SkipHandler
        await self._handle(session_key_of(query.message, query.from_user, bot), press)

    async def _handle(self, key: SessionKey, event: FlowEvent, *, awaited_only: bool = False) -> None:
        """Events of other flows and handlers are left to other routers."""
        mark_repeatable()  # an event counts once, and so do its effects
        try:
            is_ours = await self._executor.handle(key, event, awaited_only=awaited_only)
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            query = event.query if isinstance(event, ButtonPress) else None
            await self._executor.apologise(key, event, self._sorry, query)
            return
        if not is_ours:
            raise SkipHandler

    # Events from the application

    async def begin(
        self,
        chat: int,
        user: int | None = None,
        data: Mapping[str, Any] | None = None,
        *,
        language: str | None = None,
        event: str | None = None,
        thread: int | None = None,
    ) -> None:
        """Begin a session anew. Without a user: in the private chat. `thread`: in this topic. `event`: an id
        of the cause; calls with the same id within a week count once.
        """
        await self._executor.begin(
            self._session_key(chat, user, thread), data, language=language, event=event
        )

    async def signal(
        self,
        chat: int,
        user: int | None,
        name: str,
        value: object = None,
        *,
        event: str | None = None,
        thread: int | None = None,
    ) -> bool:
        """Report an event to the flow, as the trigger `signal:name`. Return whether there was a session.

        `event` and `thread` as for `begin`; a signal that no session heard may be repeated.
        """
        return await self._executor.signal(self._session_key(chat, user, thread), name, value, event=event)

    def _session_key(self, chat: int, user: int | None, thread: int | None) -> SessionKey:
        return SessionKey(self.bot.id, chat, chat if user is None else user, thread)

    async def restore(
        self,
        state: str | None = None,
        source: SubscriptionSource | None = None,
        *,
        group: int | None = None,
        every: float = RESTORE_EVERY,
        on_progress: OnProgress | None = None,
    ) -> RestoreResult:
        """Poll again for users who waited, `group` of them every `every` seconds, while the bot runs.

        Without `group`: 10, 15 or 20 at a time, more with their number, so that all take 15 s at most.

        Without a source: the stored subscriptions, of the state's poll or of all polls. A source yields
        `Subscription(key, {"user_id": …, "chat_id": …, …})`; a user without a session is put into the state
        silently, with these data. Without `on_progress` the progress is printed.
        """
        restorer = FlowRestorer(self._executor, self.bot.id, group, every, on_progress or show(state))
        if source is None:
            return await restorer.from_store(state)
        return await restorer.from_source(state, source)

    def stats(self) -> FlowStats:
        """Counts of this process, since the executor was made."""
        return self._executor.stats()


def _bot(token: str, api_url: str | None) -> Bot:
    session = None if api_url is None else AiohttpSession(api=TelegramAPIServer.from_base(api_url))
    try:
        return Bot(token, session=session)
    except TokenValidationError:
        raise BadInputError("that is no bot token: it looks like 123456:ABC…, from @BotFather") from None


__all__ = ["FlowExecutor"]
