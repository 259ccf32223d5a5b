"""The update and hook handlers of a gate, and what the webhook app asks the gate for."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

from tidegate.bots.registry import BotInfo
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError
from tidegate.inbound.dispatcher import ItemHandler
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import MAX_WAITING_ITEMS, UnreadableBodyError, bot_source, hook_source
from tidegate.inbound.signed_hooks import Hook, HookEvent, unpack_event
from tidegate.inbound.updates import decode_update
from tidegate.inbound.webhook_app import WebhookBackend, webhook_secret
from tidegate.leader_lease import take_over
from tidegate.outbox.port import StoreHealth

log = logging.getLogger("tidegate.inbound")

NEARLY_FULL: Final = 0.9  # of MAX_WAITING_ITEMS: from here on, other processes should get the updates

UpdateHandler = Callable[[int, dict[str, Any]], Awaitable[None]]
HookEventHandler = Callable[[HookEvent], Awaitable[None]]


class AttachedLibrary(Protocol):
    """The dispatchers of a bot library, which run while the webhook app is served."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def end_at_once(self) -> None:
        """Give handlers no time to end."""


class HandlersHost(Protocol):
    """The part of a gate that its handlers need."""

    clock: Clock
    handler_registry: HandlerRegistry

    @property
    def is_open(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def bots(self) -> list[BotInfo]: ...

    def token_of(self, bot: int) -> str | None: ...

    def health(self) -> StoreHealth: ...

    @property
    def attached_library(self) -> AttachedLibrary | None: ...


class GateHandlers(WebhookBackend):
    """The handlers of one gate. Started once at a time."""

    def __init__(self, gate: HandlersHost) -> None:
        self._gate = gate
        self._hooks: dict[str, Hook] = {}
        self._event_handlers: dict[str, HookEventHandler] = {}
        self._update_handler: UpdateHandler | None = None
        self._secrets: dict[int, tuple[str, str]] = {}  # by bot: its token, and the secret made of it
        self.runs_library = True
        self._is_started = False
        self._registry: HandlerRegistry | None = None  # while it runs
        self._running = AsyncExitStack()

    def handle_updates(self, handler: UpdateHandler) -> None:
        if self._update_handler is not None:
            raise BadInputError("updates have a handler already: one is enough")
        self._update_handler = _check_handler(handler)
        self._register()

    def handle_events(self, hook: Hook, handler: HookEventHandler) -> None:
        if hook.name in self._hooks:
            raise BadInputError(f"hook {hook.name} has a handler already: one is enough")
        self._event_handlers[hook.name] = _check_handler(handler)
        self._hooks[hook.name] = hook
        self._register()

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    def registry(self) -> HandlerRegistry:
        if not self._gate.is_open:
            raise ClosedError("the gate is not open yet, or no longer")
        if self._registry is not self._gate.handler_registry:  # the gate was opened by another component
            raise ClosedError(
                "updates are not handled yet: await `start()` of the mounted `gate.asgi()` first"
            )
        return self._registry

    def secret_of(self, bot_id: int) -> str | None:
        """The secret of a bot that has a handler here: updates without one must not be accepted."""
        token = self._gate.token_of(bot_id) if self._gate.is_open else None
        if token is None or not self._accepts_updates_of(bot_id):
            self._secrets.pop(bot_id, None)
            return None
        made_of, secret = self._secrets.get(bot_id, ("", ""))
        if made_of != token:
            secret = webhook_secret(token)
            self._secrets[bot_id] = (token, secret)
        return secret

    def _accepts_updates_of(self, bot_id: int) -> bool:
        if not self._gate.handler_registry.knows(bot_source(bot_id)):
            self._register_bot(bot_id)  # it may be a new one
        return self._gate.handler_registry.knows(bot_source(bot_id))

    async def problems(self) -> dict[str, str]:
        registry = self.registry()
        if found := gate_problems(self._gate.health()):  # the store is not asked: it may not answer
            return found
        stats, problems = await registry.stats(), {}
        # One bot that is flooded takes no room of the others, which must be reached.
        sources = max(1, len(self._gate.bots()) + len(self._hooks))
        if stats.waiting > NEARLY_FULL * MAX_WAITING_ITEMS * sources:
            problems["inbox"] = f"{stats.waiting} updates wait to be handled"
        return problems

    def notes(self) -> Sequence[str]:
        return self._gate.health().reasons

    async def start(self) -> None:
        """Wait while another process is the sender of the store. Raises BadInputError if it is started."""
        if self._is_started:
            raise BadInputError("this gate is served already: one server at a time, or a gate for each")
        self._is_started = True
        try:
            await self._start()
        except BaseException:
            self._is_started = False
            raise

    async def _start(self) -> None:
        library = self._gate.attached_library
        async with AsyncExitStack() as stack:
            if library is not None and self.runs_library:
                await library.start()
                stack.push_async_callback(library.stop)
            await take_over(self._gate.start, self._gate.clock, log)
            stack.push_async_callback(self._gate.stop)
            registry = self._gate.handler_registry
            await registry.start()
            stack.push_async_callback(registry.stop)
            self._registry = registry
            self._register()
            self._running = stack.pop_all()

    async def stop(self) -> None:
        self._secrets.clear()
        self._registry = None
        try:
            await self._running.aclose()
        finally:
            self._is_started = False

    def _register(self) -> None:
        """Register every handler that is known by now, while it runs."""
        if self._registry is None:
            return
        for name, hook in self._hooks.items():
            if not self._registry.has_handler(hook_source(name)):
                handler = _event_item_handler(self._event_handlers[name])
                # An event is delivered at least once: its handler is told so, and gets its id.
                self._registry.register(
                    hook_source(name), handler, attempts=hook.attempts, is_repeatable=True
                )
        for bot in self._gate.bots():
            self._register_bot(bot.id)

    def _register_bot(self, bot: int) -> None:
        source, registry = bot_source(bot), self._registry
        if registry is not None and self._update_handler is not None and not registry.has_handler(source):
            registry.register(source, _update_item_handler(bot, self._update_handler))


def gate_problems(health: StoreHealth) -> dict[str, str]:
    """Return why a gate is not ready, as `/readyz` says it; nothing if it is."""
    return {} if health.ready else {"gate": "; ".join(health.reasons)}


def _event_item_handler(handler: HookEventHandler) -> ItemHandler:
    return lambda claimed: handler(_decode_event(claimed.item.body))


def _decode_event(body: bytes) -> HookEvent:
    try:
        return unpack_event(body)
    except ValueError as error:
        raise UnreadableBodyError(str(error)) from error


def _update_item_handler(bot: int, handler: UpdateHandler) -> ItemHandler:
    return lambda claimed: handler(bot, decode_update(claimed.item.body))


def _check_handler(handler: Any) -> Any:  # noqa: ANN401  (a handler of either kind)
    if not inspect.iscoroutinefunction(handler):
        raise BadInputError("a handler must be an async function: another one would block all others")
    return handler
