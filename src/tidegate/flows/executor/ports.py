"""What an executor needs of others."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tidegate.clock import Clock
from tidegate.flows.executor.place import Place
from tidegate.flows.session import Session
from tidegate.polling.poller import Poller
from tidegate.polling.store.base import Subscriptions


class Gate(Protocol):
    """`Tidegate`, as seen from below."""

    clock: Clock

    @property
    def outbox(self) -> object:
        """Another one each time that the gate is opened anew."""

    def subscriptions(self, name: str) -> Subscriptions: ...

    def poll(self, poller: Poller) -> None: ...

    async def send(self, *, bot: int | None = None, **fields: Any) -> object:  # noqa: ANN401  (Telegram's)
        """Durable when it returns."""

    async def call(self, method: str, params: dict[str, Any], *, bot: int | None = None) -> Any: ...  # noqa: ANN401


class Sessions(Protocol):
    """Where they are kept. Each step is whole or not at all, and durable as far as the place is."""

    async def get(self, place: Place) -> Session | None: ...

    async def put(self, place: Place, session: Session) -> None: ...

    async def drop(self, place: Place) -> None: ...


class Turns(Protocol):
    """Who has the word: one at a time, in all processes that share the sessions."""

    def hold(self, key: str) -> AbstractAsyncContextManager[None]: ...
