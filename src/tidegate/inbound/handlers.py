"""The update and hook handlers of a gate, and what the webhook app asks the gate for."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import msgspec

from tidegate.bots.registry import BotInfo
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import MAX_WAITING_ITEMS, ClaimedItem, bot_source, hook_source
from tidegate.inbound.signed_hooks import Hook, HookEvent, unpack_event
from tidegate.inbound.webhook_app import WebhookBackend, webhook_secret
from tidegate.outbox.port import StoreHealth

log = logging.getLogger("tidegate.inbound")

TAKEOVER_INTERVAL: Final = 1.0  # seconds between two tries to take over from another process
NEARLY_FULL: Final = 0.9  # of what may wait: from here on, others should get the updates

UpdateHandler = Callable[[int, dict[str, Any]], Awaitable[None]]
HookEventHandler = Callable[[HookEvent], Awaitable[None]]


class HandlersHost(Protocol):
    """The gate, as seen from here."""

    clock: Clock
    reception: HandlerRegistry

    @property
    def is_open(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def bots(self) -> list[BotInfo]: ...

    def token_of(self, bot: int) -> str | None: ...

    def health(self) -> StoreHealth: ...

    @property
    def companion(self) -> "AttachedLibrary | None": ...


class AttachedLibrary(Protocol):
    """What runs while the front is served: the dispatchers of a bot library."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class GateHandlers(WebhookBackend):
    """Of one gate. Started once at a time."""

    def __init__(self, gate: HandlersHost) -> None:
        self._gate = gate
        self._hooks: dict[str, Hook] = {}
        self._on_event: dict[str, HookEventHandler] = {}
        self._on_update: UpdateHandler | None = None
        self._secrets: dict[
            int, tuple[str, str]
        ] = {}  # of bots of this gate: the token, and what is made of it
        self.runs_companion = True
        self._is_begun = False
        self._served: HandlerRegistry | None = None  # while it runs
        self._running = AsyncExitStack()

    def handle_updates(self, handler: UpdateHandler) -> None:
        if self._on_update is not None:
            raise BadInputError("updates have a handler already: one is enough")
        self._on_update = _check_handler(handler)
        self._serve()

    def handle_events(self, hook: Hook, handler: HookEventHandler) -> None:
        if hook.name in self._hooks:
            raise BadInputError(f"hook {hook.name} has a handler already: one is enough")
        self._on_event[hook.name] = _check_handler(handler)
        self._hooks[hook.name] = hook
        self._serve()

    # --- what the front asks ---

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    def reception(self) -> HandlerRegistry:
        if not self._gate.is_open:
            raise ClosedError("the gate is not open yet, or no longer")
        if self._served is not self._gate.reception:  # it was opened by somebody else
            raise ClosedError("nothing is handled: whoever mounts `gate.asgi()` awaits its `start()` first")
        return self._served

    def secret_of(self, bot_id: int) -> str | None:
        """Of a bot whose updates are handled here: what nobody handles must not be taken."""
        token = self._gate.token_of(bot_id) if self._gate.is_open else None
        if token is not None and not self._takes_updates_of(bot_id):
            token = None
        if token is None:
            self._secrets.pop(bot_id, None)
            return None
        made_of, secret = self._secrets.get(bot_id, ("", ""))
        if made_of != token:
            secret = webhook_secret(token)
            self._secrets[bot_id] = (token, secret)
        return secret

    def _takes_updates_of(self, bot_id: int) -> bool:
        if not self._gate.reception.knows(bot_source(bot_id)):
            self._serve_bot(bot_id)  # it may have been registered lately
        return self._gate.reception.knows(bot_source(bot_id))

    async def readiness(self) -> dict[str, str]:
        stats = await self.reception().stats()
        health = self._gate.health()
        problems = {}
        if not health.ready:
            problems["store"] = "; ".join(health.reasons)
        if stats.waiting > NEARLY_FULL * MAX_WAITING_ITEMS:
            problems["inbox"] = f"{stats.waiting} updates wait to be handled"
        return problems

    async def start(self) -> None:
        """Waits while another process is the one that sends. Raises BadInputError if it is started."""
        if self._is_begun:
            raise BadInputError("this gate is served already: one server at a time, or a gate for each")
        self._is_begun = True
        try:
            await self._start()
        except BaseException:
            self._is_begun = False
            raise

    async def _start(self) -> None:
        companion = self._gate.companion
        async with AsyncExitStack() as stack:
            if companion is not None and self.runs_companion:
                await companion.start()
                stack.push_async_callback(companion.stop)
            await self._take_over()
            stack.push_async_callback(self._gate.stop)
            reception = self._gate.reception
            await reception.start()
            stack.push_async_callback(reception.stop)
            self._served = reception
            self._serve()
            self._running = stack.pop_all()

    async def _take_over(self) -> None:
        """Where the store has one sender, and it is another process, wait for the end of that."""
        said = False
        while True:
            try:
                return await self._gate.start()
            except NotTheSenderError as error:
                if not said:
                    log.warning("%s. This one waits to take over", error)
                said = True
            await self._gate.clock.sleep(TAKEOVER_INTERVAL)

    async def stop(self) -> None:
        self._secrets.clear()
        self._served = None
        try:
            await self._running.aclose()
        finally:
            self._is_begun = False

    def _serve(self) -> None:
        """Whatever has a handler by now."""
        if self._served is None:
            return
        for name, hook in self._hooks.items():
            if not self._served.serves(hook_source(name)):
                handler = _event_item_handler(self._on_event[name])
                self._served.serve(hook_source(name), handler, attempts=hook.attempts)
        for bot in self._gate.bots():
            self._serve_bot(bot.id)

    def _serve_bot(self, bot: int) -> None:
        source = bot_source(bot)
        if self._served is not None and self._on_update is not None and not self._served.serves(source):
            self._served.serve(source, _update_item_handler(bot, self._on_update))


def _event_item_handler(handler: HookEventHandler) -> Callable[[ClaimedItem], Awaitable[None]]:
    async def handle(held: ClaimedItem) -> None:
        await handler(unpack_event(held.arrival.body))

    return handle


def _update_item_handler(bot: int, handler: UpdateHandler) -> Callable[[ClaimedItem], Awaitable[None]]:
    async def handle(held: ClaimedItem) -> None:
        await handler(bot, msgspec.json.decode(held.arrival.body))

    return handle


def _check_handler(handler: Any) -> Any:  # noqa: ANN401  (a handler of either kind)
    if not inspect.iscoroutinefunction(handler):
        raise BadInputError("a handler must be an async function: it would hold up everybody")
    return handler
