"""What comes in through the front: who handles it, and what the front has to know of the gate."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import msgspec

from tidegate.errors import BadInputError, ClosedError
from tidegate.inbound.arrivals import Held, bot_source, hook_source
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.hook import Hook, HookEvent, unpack
from tidegate.inbound.inbox.base import MOST
from tidegate.inbound.reception import Reception
from tidegate.inbound.secret import webhook_secret
from tidegate.outbox.base import Health
from tidegate.roster import BotInfo

CROWDED: Final = 0.9  # of what may wait: from here on, others should get the updates

OnUpdate = Callable[[int, dict[str, Any]], Awaitable[None]]
OnEvent = Callable[[HookEvent], Awaitable[None]]


class Host(Protocol):
    """The gate, as seen from here."""

    reception: Reception

    @property
    def is_open(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def bots(self) -> list[BotInfo]: ...

    def token_of(self, bot: int) -> str | None: ...

    def health(self) -> Health: ...

    @property
    def companion(self) -> "Companion | None": ...


class Companion(Protocol):
    """What runs while the front is served: the dispatchers of a bot library."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Incoming(Door):
    """Of one gate. Handlers are said before it starts."""

    def __init__(self, gate: Host) -> None:
        self._gate = gate
        self._hooks: dict[str, Hook] = {}
        self._on_event: dict[str, OnEvent] = {}
        self._on_update: OnUpdate | None = None
        self._secrets: dict[
            int, tuple[str, str]
        ] = {}  # of bots of this gate: the token, and what is made of it
        self.runs_companion = True
        self._running = AsyncExitStack()

    def handle_updates(self, handler: OnUpdate) -> None:
        if self._on_update is not None:
            raise BadInputError("updates have a handler already: one is enough")
        self._on_update = _checked(handler)

    def handle_events(self, hook: Hook, handler: OnEvent) -> None:
        if hook.name in self._hooks:
            raise BadInputError(f"hook {hook.name} has a handler already: one is enough")
        self._on_event[hook.name] = _checked(handler)
        self._hooks[hook.name] = hook

    # --- what the front asks ---

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    def reception(self) -> Reception:
        if not self._gate.is_open:
            raise ClosedError("the gate is not open yet, or no longer")
        return self._gate.reception

    def secret_of(self, bot_id: int) -> str | None:
        """Of a bot whose updates are handled here: what nobody handles must not be taken."""
        known = self._gate.is_open and self._gate.reception.knows(bot_source(bot_id))
        token = self._gate.token_of(bot_id) if known else None
        if token is None:
            self._secrets.pop(bot_id, None)
            return None
        made_of, secret = self._secrets.get(bot_id, ("", ""))
        if made_of != token:
            secret = webhook_secret(token)
            self._secrets[bot_id] = (token, secret)
        return secret

    async def readiness(self) -> dict[str, str]:
        stats = await self.reception().stats()
        health = self._gate.health()
        problems = {}
        if not health.ready:
            problems["store"] = "; ".join(health.reasons)
        if stats.waiting > CROWDED * MOST:
            problems["inbox"] = f"{stats.waiting} updates wait to be handled"
        return problems

    async def start(self) -> None:
        companion = self._gate.companion
        async with AsyncExitStack() as stack:
            if companion is not None and self.runs_companion:
                await companion.start()
                stack.push_async_callback(companion.stop)
            await self._gate.start()
            stack.push_async_callback(self._gate.stop)
            self._serve()
            await self._gate.reception.start()
            stack.push_async_callback(self._gate.reception.stop)
            self._running = stack.pop_all()

    async def stop(self) -> None:
        self._secrets.clear()
        await self._running.aclose()

    def _serve(self) -> None:
        reception = self._gate.reception
        for name, hook in self._hooks.items():
            if not reception.serves(hook_source(name)):
                handler = _of_events(self._on_event[name])
                reception.serve(hook_source(name), handler, attempts=hook.attempts)
        for bot in self._gate.bots():
            if self._on_update is not None and not reception.serves(bot_source(bot.id)):
                reception.serve(bot_source(bot.id), _of_updates(bot.id, self._on_update))


def _of_events(handler: OnEvent) -> Callable[[Held], Awaitable[None]]:
    async def handle(held: Held) -> None:
        await handler(unpack(held.arrival.body))

    return handle


def _of_updates(bot: int, handler: OnUpdate) -> Callable[[Held], Awaitable[None]]:
    async def handle(held: Held) -> None:
        await handler(bot, msgspec.json.decode(held.arrival.body))

    return handle


def _checked(handler: Any) -> Any:  # noqa: ANN401  (a handler of either kind)
    if not inspect.iscoroutinefunction(handler):
        raise BadInputError("a handler must be an async function: it would hold up everybody")
    return handler
