"""A flow as a part of a bot, whatever its library: what the adapters' flow executors have in common."""

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from tidegate.errors import BadInputError
from tidegate.failure import describe_error
from tidegate.flows.executor.effect_runner import OnUnknown
from tidegate.flows.executor.executor import FlowRestorer, FlowRunner
from tidegate.flows.executor.polls import MakePoller
from tidegate.flows.executor.stats import FlowStats
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.port import FlowGate, FlowSessionStore, SessionKey
from tidegate.flows.registry import FlowRegistry, RunningFlow
from tidegate.flows.telegram_updates import UserEvent, query_of
from tidegate.handler_run import mark_repeatable
from tidegate.polling.poller import Poller
from tidegate.polling.restorer import RESTORE_EVERY, OnProgress, RestoreResult, SubscriptionSource, show

log = logging.getLogger("tidegate.flows")

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
    def flows(self) -> FlowRegistry: ...

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
    def attach(self) -> Callable[..., Any]:
        """Attach to the dispatcher or the builder of a bot library."""
        ...

    def fsm_storage(self) -> Any:  # noqa: ANN401  (of aiogram)
        """The conversations in the gate's file. Raises BadInputError if it has none."""
        ...


def default_gate() -> FlowBotGate:
    """A gate on the store of the environment. The facade is a layer above, so it is imported here."""
    return cast("FlowBotGate", importlib.import_module("tidegate").Tidegate())


class FlowBot:
    """Runs a flow for one bot. Subclasses bring updates in, and start and stop it with their bot."""

    def __init__(
        self,
        flow: Flow,
        *,
        gate: FlowBotGate | None,
        work: Mapping[str, WorkFunction] | None = None,
        pollers: Mapping[str, Poller | MakePoller] | None = None,
        batch_polling: Mapping[str, Any] | None = None,
        in_batches: bool = True,
        lifetime: float | None = None,
        tries: int = WORK_TRIES,
        restore: bool = True,
        sorry: str = SORRY,
        on_unknown: OnUnknown = "resend",
    ) -> None:
        if not isinstance(flow, Flow):
            raise BadInputError(
                f"a {type(flow).__name__} cannot be run: give what build() or load_flow() returns"
            )
        if gate is not None and not hasattr(gate, "core"):
            raise BadInputError(f"gate is of type {type(gate).__name__}: give a Tidegate, or leave it out")
        self.gate = gate if gate is not None else default_gate()
        self.flow = (flow if lifetime is None else msgspec.structs.replace(flow, lifetime=lifetime)).flat
        self._memory: FlowSessionStore | None = None
        self._sorry = sorry
        self._runner = FlowRunner(
            self.flow,
            self.gate,
            work=work,
            pollers=pollers,
            batch_polling=batch_polling,
            in_batches=in_batches,
            restore=restore,
            tries=tries,
            on_unknown=on_unknown,
        )
        self._running: RunningFlow | None = None

    @property
    def bot_id(self) -> int:
        raise NotImplementedError

    async def _run(self, wrap: Callable[[FlowSessionStore], FlowSessionStore] = lambda store: store) -> None:
        """Start, on the gate's store of sessions, or on one around it."""
        store = self.gate.core.store.flow_sessions(self.flow.name)
        if not store.is_durable:  # one store for as long as this executor lives
            self._memory = store = self._memory or store
        store = wrap(store)
        await self._runner.start(store)
        self._running = RunningFlow(self.flow, self.bot_id, store, self._runner.stats, self.gate.clock)
        self.gate.core.flows.add(self._running)

    async def _end(self) -> None:
        if self._running is not None:
            self.gate.core.flows.remove(self._running)
            self._running = None
        await self._runner.stop()

    async def _take(self, found: UserEvent, *, awaited_only: bool = False) -> bool:
        """Handle an event of a user. Return whether it is this flow's."""
        mark_repeatable()  # an event counts once, and so do its effects
        try:
            return await self._runner.handle(found.key, found.event, awaited_only=awaited_only)
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            await self._runner.apologise(found.key, found.event, self._sorry, query_of(found.event))
            return True

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
        await self._runner.begin(self._session_key(chat, user, thread), data, language=language, event=event)

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
        return await self._runner.signal(self._session_key(chat, user, thread), name, value, event=event)

    def _session_key(self, chat: int, user: int | None, thread: int | None) -> SessionKey:
        return SessionKey(self.bot_id, chat, chat if user is None else user, thread)

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
        restorer = FlowRestorer(self._runner, self.bot_id, group, every, on_progress or show(state))
        if source is None:
            return await restorer.from_store(state)
        return await restorer.from_source(state, source)

    def stats(self) -> FlowStats:
        """Counts of this process, since the executor was made."""
        return self._runner.stats()
