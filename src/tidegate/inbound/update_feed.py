"""The update feed: the updates of a bot, kept until each of its readers has confirmed them.

One long poll or webhook fills it, and any number of readers read it, each at its own position. Updates are
numbered anew: the number is Telegram's `update_id` where that rises, else the next one. So a position has a
meaning even if a webhook delivers out of order, or if Telegram begins to count elsewhere after a quiet week.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.updates import OWN_KINDS, UPDATE_KINDS, Json, describe_update
from tidegate.leader_lease import LeaseStore
from tidegate.model import BotId, ChatId

DEFAULT_READER: Final = "default"
FEED_SECONDS: Final = 86_400.0  # as long as Telegram keeps an update; likewise a reader that is not seen
MAX_FED_UPDATES: Final = 100_000  # of a bot: then the oldest are dropped, also for slow readers
MAX_READERS: Final = 100  # of a bot
SEEN_NUMBERS: Final = 100_000  # so many numbers back, an update is known again
SEEN_NOTED_EVERY: Final = 60.0  # seconds: a step that changes nothing else writes nothing
LONGEST_ERROR: Final = 200  # characters
# Telegram leaves these out unless a bot asks for them (`allowed_updates` of getUpdates).
ON_REQUEST: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})

Kinds = tuple[str, ...]  # none: all but those ON_REQUEST
UNKNOWN_KIND: Final = "unknown"  # of an update in which no object is found
FeedState = Literal["ok", "superseded", "pushed", "ended", "crowded"]


class NewUpdate(msgspec.Struct, frozen=True):
    """An update as it is appended. `body` is its JSON object without the update_id."""

    update_id: int  # Telegram's
    kind: str  # Telegram's word for it
    chat: int | None  # its chat, else its user: for the erasure of a chat
    body: bytes


class FedUpdate(msgspec.Struct, frozen=True):
    """An update as a reader gets it."""

    number: int
    body: bytes

    def content(self) -> bytes:
        """Return its JSON object, with the number as its update_id."""
        rest = self.body[1:]
        return b'{"update_id":%d%b%b' % (self.number, b"" if rest == b"}" else b",", rest)


class PushTarget(msgspec.Struct, frozen=True):
    """Where the updates of a reader are posted."""

    url: str
    secret: str | None = None
    error_at: float = 0.0  # when the latest post failed; 0: none has
    error: str = ""


class FeedReader(msgspec.Struct, frozen=True):
    """A reader of a bot. It has confirmed every update whose number is below its position."""

    name: str
    position: int
    kinds: Kinds = ()
    target: PushTarget | None = None  # None: it polls


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a poll. `poll` names the poll; the step that `begins` one ends the reader's poll before it.

    A positive `offset` confirms the updates below it; a negative one confirms all but the last ones.
    `kinds` are remembered; None leaves them as they are. `pushes`: for a reader with a target.
    """

    poll: str = ""
    begins: bool = True
    offset: int | None = None
    kinds: Kinds | None = None
    limit: int = 100
    pushes: bool = False


class Dropped(msgspec.Struct, frozen=True):
    """Outcome of a step: how many unread updates each reader lost, and the readers that were forgotten."""

    lost: Mapping[str, int] = {}
    forgotten: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.forgotten)


class Appended(msgspec.Struct, frozen=True):
    is_new: list[bool]
    dropped: Dropped = Dropped()


class FeedPage(msgspec.Struct, frozen=True):
    """The answer to a request. Without the state "ok" nothing was read and nothing has changed.

    `superseded`: a later poll of the reader has begun. `pushed`: the reader has a target; for a request that
    pushes, `ended`: it has none. `crowded`: the bot has MAX_READERS already.
    """

    state: FeedState = "ok"
    updates: Sequence[FedUpdate] = ()
    target: PushTarget | None = None
    last: int = 0  # the highest number of the feed
    readers: int = 1  # of the bot, with this one
    has_new_kinds: bool = False
    dropped: Dropped = Dropped()


class UpdateFeed(Protocol):
    """One contract suite (tests/contract/test_update_feed.py) runs on every feed.

    Every verb is one atomic step, durable when it returns. Raises StoreAwayError and StoreError as the outbox
    does. A new reader begins at the next update, unless an offset above 1 says otherwise. The one called
    DEFAULT_READER is there from the beginning, and is given all that is held: others that come first do not
    confirm for it.
    """

    leases: LeaseStore  # of the process that fetches the updates of a bot: those of the inbox

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def append(self, bot: BotId, updates: Sequence[NewUpdate]) -> Appended:
        """Add updates at the end. Those that were appended before are left out, read or not.

        Drops what is older than FEED_SECONDS, and the oldest beyond MAX_FED_UPDATES.
        """
        ...

    async def read(self, bot: BotId, reader: str, request: ReadRequest) -> FeedPage:
        """Return the first updates that the reader has not confirmed, of its kinds. See `ReadRequest`.

        Updates before them, of other kinds, are passed over: they are confirmed. What every reader has
        confirmed is deleted.
        """
        ...

    async def readers(self, bot: BotId) -> list[FeedReader]:
        """Return the readers of a bot, by name."""
        ...

    async def bots(self) -> list[BotId]:
        """Return the bots that have a feed."""
        ...

    async def pending(self, bot: BotId, reader: str) -> int:
        """Return how many updates of its kinds the reader has yet to confirm."""
        ...

    async def set_target(
        self,
        bot: BotId,
        reader: str,
        target: PushTarget | None,
        *,
        kinds: Kinds | None = None,
        drops_pending: bool = False,
    ) -> bool:
        """Have the updates of a reader posted, or end that. Its poll ends. Return False if it is crowded."""
        ...

    async def note_error(self, bot: BotId, reader: str, url: str, error: str) -> None:
        """Note that a post to this address has failed now, if it is still that of the reader."""

    async def drop_old(self, bot: BotId) -> Dropped:
        """Drop what is too old, as `append` and the beginning of a poll do: for a bot that is quiet."""
        ...

    async def forget(self, bot: BotId, reader: str) -> bool:
        """Delete a reader. False if there is none."""
        ...

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> int:
        """Delete the updates of a chat, of one bot or of all; return how many."""
        ...

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back after updates of a bot were appended by any process, until the result is called."""
        ...


class StoredReader(msgspec.Struct):
    """A reader as a store keeps it, with the rules that hold in every store."""

    name: str
    position: int
    seen_at: float
    poll: str = ""
    kinds: Kinds = ()
    target: PushTarget | None = None

    def public(self) -> FeedReader:
        return FeedReader(self.name, self.position, self.kinds, self.target)

    def refusal(self, request: ReadRequest) -> FeedState | None:
        """Return why a request is not for this reader any more; None if it is."""
        if request.pushes != (self.target is not None):
            return "ended" if request.pushes else "pushed"
        return "superseded" if not request.begins and self.poll != request.poll else None

    def set_target(self, target: PushTarget | None, kinds: Kinds | None) -> None:
        self.target, self.poll = target, ""
        self.kinds = self.kinds if kinds is None else kinds

    def note_error(self, url: str, error: str, now: float) -> bool:
        """Note a post that has failed; return whether its address is still that of the reader."""
        if self.target is None or self.target.url != url:
            return False
        self.target = msgspec.structs.replace(self.target, error_at=now, error=error[:LONGEST_ERROR])
        return True


def refusal_of_unknown(request: ReadRequest) -> FeedState | None:
    """Return why a request cannot make its reader, which there is not; None if it makes it."""
    if request.pushes:
        return "ended"
    return None if request.begins else "superseded"


class FeedWatchers:
    """The callbacks of one process, by bot."""

    def __init__(self) -> None:
        self._callbacks: dict[BotId, set[Callable[[], object]]] = {}

    def add(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        self._callbacks.setdefault(bot, set()).add(callback)

        def remove() -> None:
            callbacks = self._callbacks.get(bot, set())
            callbacks.discard(callback)
            if not callbacks:
                self._callbacks.pop(bot, None)

        return remove

    def tell(self, bot: BotId) -> None:
        for callback in tuple(self._callbacks.get(bot, ())):
            callback()

    def tell_all(self) -> None:
        for bot in tuple(self._callbacks):
            self.tell(bot)


def new_update(update: Json) -> NewUpdate:
    """Raises BadInputError for what is not an update."""
    update_id = update.get("update_id")
    if type(update_id) is not int or not 0 <= update_id < 2**53:
        raise BadInputError("an update has an update_id, a number: this one has none")
    kind = next((name for name, content in update.items() if isinstance(content, dict)), UNKNOWN_KIND)
    info = describe_update(update)
    chat = info.user if info.chat is None else info.chat
    rest = {name: content for name, content in update.items() if name != "update_id"}
    return NewUpdate(
        update_id,
        kind if kind.isidentifier() else UNKNOWN_KIND,
        chat if type(chat) is int else None,
        msgspec.json.encode(rest),
    )


def is_wanted(kind: str, kinds: Kinds) -> bool:
    return kind in kinds if kinds else kind not in ON_REQUEST


def wanted_kinds(wishes: Collection[Kinds]) -> list[str]:
    """Return the `allowed_updates` by which Telegram sends what any of these readers wants.

    The empty list stands for Telegram's default, which also has kinds that are unknown here. It cannot be
    combined with kinds on request: then those of today's Bot API are named.
    """
    named = {kind for kinds in wishes for kind in kinds}
    has_default = not all(wishes)
    if has_default and not named & ON_REQUEST:
        return []
    usual = set(UPDATE_KINDS) - ON_REQUEST - set(OWN_KINDS) if has_default else set[str]()
    return sorted(named | usual)


def start_position(reader: str, offset: int | None, last: int) -> int:
    """Return where a new reader begins. An offset of 1 is that of libraries which have read nothing yet."""
    if offset is not None and offset > 1:
        return min(offset, last + 1)
    return 0 if reader == DEFAULT_READER else last + 1


def moved_position(position: int, offset: int | None, last: int) -> int:
    """Return a position after an offset. Updates that are yet to come cannot be confirmed."""
    return max(position, min(offset or 0, last + 1))
