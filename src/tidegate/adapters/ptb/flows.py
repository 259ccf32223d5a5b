"""A flow on python-telegram-bot: a handler of an application that a gate is attached to."""

from collections.abc import Mapping
from typing import Any

from telegram import Update
from telegram.ext import BaseHandler

from tidegate.adapters.flow_bot import SORRY, FlowBot, FlowBotGate
from tidegate.adapters.ptb.rate_limiter import App, TidegateLimiter
from tidegate.errors import BadInputError
from tidegate.flows.events import Command
from tidegate.flows.executor.effect_runner import OnUnknown
from tidegate.flows.executor.polls import MakePoller
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction
from tidegate.flows.flow import Flow
from tidegate.flows.telegram_updates import FlowReader, UserEvent, has_command
from tidegate.polling.poller import Poller


class PtbFlowExecutor(FlowBot):
    """Runs a flow in an application of python-telegram-bot.

    application = gate.attach(Application.builder().token(TOKEN), updates="durable").build()
    executor = PtbFlowExecutor(flow, gate=gate, work=…)
    executor.attach(application)  # after its other handlers

    The options are those of `FlowExecutor`; sessions are in the gate's store. It starts and stops with the
    application.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        gate: FlowBotGate,
        enable_batch_polling: bool = True,
        batch_polling_config: Mapping[str, Any] | None = None,
        work: Mapping[str, WorkFunction] | None = None,
        pollers: Mapping[str, Poller | MakePoller] | None = None,
        lifetime: float | None = None,
        tries: int = WORK_TRIES,
        restore: bool = True,
        sorry: str = SORRY,
        on_unknown: OnUnknown = "resend",
    ) -> None:
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
        self._application: App | None = None

    @property
    def bot_id(self) -> int:
        return int(self._attached.bot.token.partition(":")[0])

    @property
    def _attached(self) -> App:
        if self._application is None:
            raise BadInputError(f"flow {self.flow.name} has no application: call attach(application) first")
        return self._application

    def attach(self, application: App) -> None:
        """Let an application handle this flow. Call it after `add_handler` of group 0: in a group the first
        handler that takes an update is the only one. Several flows may be attached, in the order of trial.
        """
        limiter = getattr(application.bot, "rate_limiter", None)
        if not isinstance(limiter, TidegateLimiter) or not limiter.belongs_to(self.gate.core):
            raise BadInputError(
                "the application is not attached to the flow's gate: build it with"
                " gate.attach(Application.builder().token(TOKEN), updates=…).build()"
            )
        self._application = application
        limiter.on_open(self._run, self._end)
        handlers = (one for one in application.handlers.get(0, ()) if isinstance(one, FlowHandler))
        if (handler := next(handlers, None)) is None:
            handler = FlowHandler()
            application.add_handler(handler)
        handler.executors.append(self)

    def read(self, update: Update) -> UserEvent | None:
        """The event of an update, if it may be this flow's."""
        now, bot = self.gate.clock.now(), self._attached.bot
        reader = FlowReader(self.flow, self.bot_id, bot.username)
        if update.message is not None:
            return reader.message(update.message.to_dict(), update.update_id, now)
        if update.callback_query is not None and isinstance(update.callback_query.data, str):
            return reader.press(update.callback_query.to_dict(), update.update_id, now)
        return None

    async def take(self, found: UserEvent, *, is_unhandled: bool) -> bool:
        """Return whether the event is this flow's. A command that no handler takes is unexpected input."""
        if not is_unhandled:
            return await self._take(found, awaited_only=not found.is_addressed)
        is_foreign = isinstance(found.event, Command) and not has_command(self.flow, found.event.name)
        return is_foreign and found.is_private and await self._take(found)


class FlowHandler(BaseHandler[Update, Any, None]):
    """Offers what the handlers before it have left to each flow."""

    def __init__(self) -> None:
        super().__init__(_never_called, block=True)
        self.executors: list[PtbFlowExecutor] = []

    def check_update(self, update: object) -> list[tuple[PtbFlowExecutor, UserEvent]] | None:
        if not isinstance(update, Update):
            return None
        read = ((executor, executor.read(update)) for executor in self.executors)
        return [(executor, found) for executor, found in read if found is not None] or None

    async def handle_update(
        self,
        update: Update,  # noqa: ARG002  (it was read already)
        application: App,  # noqa: ARG002
        check_result: object,
        context: object,  # noqa: ARG002
    ) -> None:
        assert isinstance(check_result, list)  # noqa: S101  (of check_update)
        for is_unhandled in (False, True):
            for executor, found in check_result:
                if await executor.take(found, is_unhandled=is_unhandled):
                    return


async def _never_called(_update: object, _context: object) -> None:
    """The callback of a handler that handles updates itself."""
