"""The ports that the executor of a flow needs: the gate, the store of sessions, and locks."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.flows.session import Session
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import Subscription, Subscriptions


class SessionKey(msgspec.Struct, frozen=True):
    """One session of a flow at most. `thread`: a topic of a forum."""

    bot: int
    chat: int
    user: int
    thread: int | None = None

    @property
    def key(self) -> str:
        """Names it in the store."""
        thread = "" if self.thread is None else f":{self.thread}"
        return f"{self.bot}:{self.chat}:{self.user}{thread}"


def parse_session_key(key: str) -> SessionKey:
    """What has this key."""
    return SessionKey(*map(int, key.split(":")))


def subscription_data(place: SessionKey, username: object) -> dict[str, Any]:
    """The data of a subscription, by which its news find the session after any restart."""
    named = {"username": username} if username else {}
    thread = {} if place.thread is None else {"thread_id": place.thread}
    return {"bot_id": place.bot, "chat_id": place.chat, "user_id": place.user, **thread, **named}


def session_key_in(subscription: Subscription, bot: int | None = None) -> SessionKey:
    """Whom it is about. Where only a user is named, it is the chat with him. Raises BadInputError."""
    data = subscription.data
    user = data.get("user_id", data.get("chat_id"))
    ids = (data.get("bot_id", bot), data.get("chat_id", user), user)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        text = (
            f"the data of {subscription.key!r} does not say whose it is: give user_id, and chat_id in a group"
        )
        raise BadInputError(text)
    return SessionKey(*ids, data.get("thread_id"))  # type: ignore[arg-type]  # checked above


class FlowGate(Protocol):
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


class FlowSessionStore(Protocol):
    """Where they are kept. Each step is whole or not at all, and durable as far as the place is."""

    async def get(self, place: SessionKey) -> Session | None: ...

    async def put(self, place: SessionKey, session: Session) -> None: ...

    async def drop(self, place: SessionKey) -> None: ...


class SessionLocks(Protocol):
    """Who has the word: one at a time, in all processes that share the sessions."""

    def hold(self, key: str) -> AbstractAsyncContextManager[None]: ...
