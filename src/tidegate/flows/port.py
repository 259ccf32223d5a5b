"""The ports that the executor of a flow needs: the gate, and the store of its sessions."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, Unpack
from weakref import WeakValueDictionary

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.flows.session import Session, read_session
from tidegate.leader_lease import LeaseStore
from tidegate.polling.subscriptions import Subscription, Subscriptions

if TYPE_CHECKING:  # only types
    from tidegate.model import Message
    from tidegate.outbox.message_fields import MessageFields

if TYPE_CHECKING:
    from tidegate.polling.poller import Poller

log = logging.getLogger("tidegate.flows")

OnDead = Callable[["Message", str], Awaitable[None]]


class SessionKey(msgspec.Struct, frozen=True):
    """A user in a chat with a bot, who has one session of a flow at most. `thread`: a topic of a forum."""

    bot: int
    chat: int
    user: int
    thread: int | None = None

    @property
    def text(self) -> str:
        """The key as stores and dedup keys spell it."""
        thread = "" if self.thread is None else f":{self.thread}"
        return f"{self.bot}:{self.chat}:{self.user}{thread}"


def parse_session_key(text: str) -> SessionKey:
    return SessionKey(*map(int, text.split(":")))


def subscription_data(key: SessionKey, username: object) -> dict[str, Any]:
    """The data of a subscription, by which its news find the session after any restart."""
    named = {"username": username} if username else {}
    thread = {} if key.thread is None else {"thread_id": key.thread}
    return {"bot_id": key.bot, "chat_id": key.chat, "user_id": key.user, **thread, **named}


def session_key_in(subscription: Subscription, bot: int | None = None) -> SessionKey:
    """The session that a subscription is for. Without a chat it is the private chat with the user.

    Raises BadInputError if the data names no user.
    """
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
    """The part of `Tidegate` that a flow uses."""

    clock: Clock

    def subscriptions(self, name: str) -> Subscriptions: ...

    def poll(self, poller: "Poller") -> None: ...

    @property
    def on_dead(self) -> "Callable[[OnDead], object]":
        """Have a function called with each message that died here, and the reason."""
        ...

    async def send(self, *, bot: int | None = None, **fields: "Unpack[MessageFields]") -> object:
        """Durable when it returns."""

    async def call(self, method: str, params: dict[str, Any], *, bot: int | None = None) -> Any: ...  # noqa: ANN401


class SessionConflictError(StoreError):
    """Another process has changed the session since it was loaded. Nothing was written."""

    def __init__(self, flow: str, key: SessionKey) -> None:
        super().__init__(f"session {key.text} of flow {flow} was changed by another process: try again")


class StoredSession(msgspec.Struct, frozen=True):
    """A session as it was loaded. `version` rises with each commit; 0: nothing is stored."""

    session: Session | None = None
    version: int = 0
    is_seen: bool = False  # the event that was asked about


class SessionPage(msgspec.Struct, frozen=True):
    """`cursor` continues the scan; an empty one says that it is complete."""

    keys: Sequence[SessionKey]
    cursor: str = ""


class FlowSessionStore(Protocol):
    """The sessions of one flow, with their timers, pending effects and seen events.

    Each call is one atomic step, durable when it returns. All processes that share the store share them.
    A session that cannot be decoded is logged and set aside where it is met: it counts as none, its bytes
    stay in the store, and others go on.
    """

    flow: str
    is_durable: bool  # survives the process
    leases: LeaseStore

    def unreadable(self) -> int:
        """Return how many sessions this process could not decode and has set aside."""
        ...

    async def load(self, key: SessionKey, event: str | None = None) -> StoredSession:
        """`event`: the id of an event, to be looked for among those that were seen."""
        ...

    async def commit(
        self,
        key: SessionKey,
        session: Session | None,
        *,
        expected: int,
        seen: str | None = None,
        at: float = 0.0,
    ) -> int:
        """Replace the session, its timer and its pending effects, and note `seen` as seen at that time.

        None removes the session. Returns the new version. Raises SessionConflictError, and changes nothing,
        if the stored version is not the expected one.
        """
        ...

    async def due(self, now: float, limit: int) -> Sequence[tuple[SessionKey, Session]]:
        """Sessions whose timer is due, the earliest first."""
        ...

    async def timers(self, now: float) -> tuple[int, float | None]:
        """The number of timers that are set, and the time of the first after now."""
        ...

    async def unfinished(self, cursor: str = "") -> SessionPage:
        """A page of the sessions that have pending effects."""
        ...

    async def scan(self, cursor: str = "") -> SessionPage:
        """A page of all sessions. One that is stored during the whole scan is found at least once."""
        ...

    async def count_states(self) -> dict[tuple[int, str], int]:
        """The number of sessions by bot and state; those that have ended are left out.

        Counted in short steps, so that nobody waits for it: each session as it was in one of them. One that
        cannot be decoded is not counted.
        """
        ...

    async def forget_seen(self, before: float) -> int:
        """Forget the events that were seen before that time, and return how many there were."""
        ...

    async def fingerprint(self) -> str | None:
        """The fingerprint of the declaration that all sessions were last brought in line with."""
        ...

    async def save_fingerprint(self, fingerprint: str) -> None: ...

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        """A lock, first come first served within a process; one holder among all that share the store."""
        ...


def readable_session(flow: str, key: str, body: bytes) -> tuple[SessionKey, Session] | None:
    """The session with this key and these bytes; one that cannot be read is logged.

    Its store sets it aside then: the bytes are kept, and the next event of its user starts anew.
    """
    try:
        return parse_session_key(key), read_session(body)
    except (BadInputError, ValueError, TypeError, RecursionError) as error:
        text = "session %s of flow %s cannot be read and is set aside, its user starts anew: %s"
        log.error(text, key, flow, error)  # noqa: TRY400
        return None


class _Standing(msgspec.Struct):
    """The part of a session that is counted: much faster than to decode all of it."""

    state: str
    ended: bool = False


_standing = msgspec.json.Decoder(_Standing)


def count_states(counts: Counter[tuple[int, str]], key: str, body: bytes) -> None:
    """Count a session as its store has it, unless it has ended or cannot be decoded."""
    with suppress(msgspec.DecodeError, UnicodeError, ValueError):
        standing = _standing.decode(body)
        if not standing.ended:
            counts[int(key.partition(":")[0]), standing.state] += 1


def readable_keys(texts: Iterable[str]) -> list[SessionKey]:
    """Without those that are no keys of sessions."""
    found = []
    for text in texts:
        with suppress(ValueError, TypeError):
            found.append(parse_session_key(text))
    return found


class LocalLocks:
    """Locks by name in this process, in the order of arrival. One that nobody holds takes no room."""

    def __init__(self) -> None:
        self.held: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        lock = self.held.setdefault(name, asyncio.Lock())
        async with lock:
            yield
