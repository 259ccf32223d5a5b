"""What comes in through the front: who handles it, and what the front has to know of the gate."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError
from tidegate.inbound.arrivals import Held, bot_source, hook_source
from tidegate.inbound.http.door import Door
from tidegate.inbound.http.hook import Hook, HookEvent, unpack
from tidegate.inbound.inbox.base import MOST
from tidegate.inbound.reception import Reception
from tidegate.inbound.secret import webhook_secret
from tidegate.outbox.base import Health
from tidegate.roster import BotInfo

log = logging.getLogger("tidegate.inbound")

ASK: Final = 1.0  # seconds between two tries to take over from another process
CROWDED: Final = 0.9  # of what may wait: from here on, others should get the updates

OnUpdate = Callable[[int, dict[str, Any]], Awaitable[None]]
OnEvent = Callable[[HookEvent], Awaitable[None]]


class Host(Protocol):
    """The gate, as seen from here."""

    clock: Clock
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
    """Of one gate. Started once at a time."""

    def __init__(self, gate: Host) -> None:
        self._gate = gate
        self._hooks: dict[str, Hook] = {}
        self._on_event: dict[str, OnEvent] = {}
        self._on_update: OnUpdate | None = None
        self._secrets: dict[
            int, tuple[str, str]
        ] = {}  # of bots of this gate: the token, and what is made of it
        self.runs_companion = True
        self._is_begun = False
        self._served: Reception | None = None  # while it runs
        self._running = AsyncExitStack()

    def handle_updates(self, handler: OnUpdate) -> None:
        if self._on_update is not None:
            raise BadInputError("updates have a handler already: one is enough")
        self._on_update = _checked(handler)
        self._serve()

    def handle_events(self, hook: Hook, handler: OnEvent) -> None:
        if hook.name in self._hooks:
            raise BadInputError(f"hook {hook.name} has a handler already: one is enough")
        self._on_event[hook.name] = _checked(handler)
        self._hooks[hook.name] = hook
        self._serve()

    # --- what the front asks ---

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    def reception(self) -> Reception:
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
        if stats.waiting > CROWDED * MOST:
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
            await self._gate.clock.sleep(ASK)

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
                handler = _of_events(self._on_event[name])
                self._served.serve(hook_source(name), handler, attempts=hook.attempts)
        for bot in self._gate.bots():
            self._serve_bot(bot.id)

    def _serve_bot(self, bot: int) -> None:
        source = bot_source(bot)
        if self._served is not None and self._on_update is not None and not self._served.serves(source):
            self._served.serve(source, _of_updates(bot, self._on_update))


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
