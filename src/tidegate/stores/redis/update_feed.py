"""The update feed in Redis: any process appends and reads, each step is one script."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.inbound import update_feed
from tidegate.inbound.update_feed import (
    DEFAULT_READER,
    LONGEST_ERROR,
    ON_REQUEST,
    SEEN_NOTED_EVERY,
    Appended,
    Dropped,
    FedUpdate,
    FeedPage,
    FeedReader,
    FeedWatchers,
    Kinds,
    NewUpdate,
    PushTarget,
    ReadRequest,
    UpdateFeed,
)
from tidegate.model import BotId, ChatId
from tidegate.stores.redis.connection import MAYBE_MISSED, Argument, RedisConnection
from tidegate.stores.redis.leases import RedisLeases
from tidegate.stores.redis.scripts import load_scripts

KEYS: Final = ("meta", "updates", "bodies", "seen", "readers", "bots", "channel")
CHANNEL: Final = "feed:channel"
SCRIPTS: Final = load_scripts(
    "update_feed",
    KEYS,
    constants={"DEFAULT_READER": DEFAULT_READER, "ON_REQUEST": dict.fromkeys(sorted(ON_REQUEST), 1)},
)


class BroughtUpdate(NamedTuple):
    """An update as another store holds it."""

    number: int
    kind: str
    chat: int | None
    arrived_at: float
    body: bytes


class BroughtReader(msgspec.Struct, frozen=True):
    """A reader as another store holds it."""

    reader: FeedReader
    seen_at: float


class _StoredReader(msgspec.Struct):
    position: int
    seen_at: float
    kinds: str = ""
    poll: str = ""
    url: str | None = None
    secret: str | None = None
    error_at: float = 0.0
    error: str = ""

    def target(self) -> PushTarget | None:
        return None if self.url is None else PushTarget(self.url, self.secret, self.error_at, self.error)


_decode: Final = msgspec.msgpack.Decoder(_StoredReader).decode


class RedisUpdateFeed(UpdateFeed):
    """The connection is the outbox's, which opens it first and closes it last."""

    def __init__(self, connection: RedisConnection, holder: str) -> None:
        self.leases = RedisLeases(connection, holder, "inbox:name:{}".format)
        self._connection = connection
        self._watchers = FeedWatchers()
        self._unsubscribe: Callable[[], object] | None = None

    async def open(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self._connection.subscribe(CHANNEL, self._on_published)

    async def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    async def append(self, bot: BotId, updates: Sequence[NewUpdate]) -> Appended:
        arguments: list[Argument] = [update_feed.SEEN_NUMBERS]
        for one in updates:
            arguments += [one.update_id, one.kind, "" if one.chat is None else one.chat, one.body]
        flags, dropped = await self._run("append", bot, *arguments)
        if any(flags):
            self._watchers.tell(bot)  # others hear of it through the channel
        return Appended([flag == 1 for flag in flags], _dropped(dropped))

    async def read(self, bot: BotId, reader: str, request: ReadRequest) -> FeedPage:
        page, more = await self._read(bot, reader, request)
        while more and not page.updates:  # none of those that were examined is wanted
            rest = msgspec.structs.replace(request, begins=False, offset=None, kinds=None)
            further, more = await self._read(bot, reader, rest)
            has_new_kinds = page.has_new_kinds or further.has_new_kinds
            page = msgspec.structs.replace(further, has_new_kinds=has_new_kinds, dropped=page.dropped)
        return page

    async def _read(self, bot: BotId, name: str, request: ReadRequest) -> tuple[FeedPage, bool]:
        reply = await self._run(
            "read",
            bot,
            name,
            request.poll,
            int(request.begins),
            "" if request.offset is None else request.offset,
            _kinds(request.kinds),
            request.limit,
            int(request.pushes),
            SEEN_NOTED_EVERY,
        )
        state, updates, more, reader, last, count, has_new_kinds, dropped = reply
        page = FeedPage(
            state=state.decode(),
            updates=[
                FedUpdate(int(number), body) for number, body in zip(updates[::2], updates[1::2], strict=True)
            ],
            target=_decode(reader).target() if reader else None,
            last=int(last or 0),
            readers=count,
            has_new_kinds=bool(has_new_kinds),
            dropped=_dropped(dropped),
        )
        return page, bool(more)

    async def readers(self, bot: BotId) -> list[FeedReader]:
        stored = await self._run("readers", bot)
        pairs = sorted(zip(stored[::2], stored[1::2], strict=True))
        return [_public(name.decode(), _decode(packed)) for name, packed in pairs]

    async def bots(self) -> list[BotId]:
        found = await self._connection.command("SMEMBERS", self._connection.key("feed:bots"))
        return sorted(BotId(int(bot)) for bot in found)

    async def pending(self, bot: BotId, reader: str) -> int:
        return await self._by_pages("pending", bot, reader)

    async def set_target(
        self,
        bot: BotId,
        reader: str,
        target: PushTarget | None,
        *,
        kinds: Kinds | None = None,
        drops_pending: bool = False,
    ) -> bool:
        url = "" if target is None else target.url
        secret = "" if target is None or target.secret is None else f"={target.secret}"
        fields = (url, secret, _kinds(kinds), int(drops_pending))
        return bool(await self._run("set_target", bot, reader, *fields))

    async def bring(
        self,
        bot: BotId,
        last: int,
        appended_at: float,
        *,
        readers: Sequence[BroughtReader] = (),
        seen: Sequence[tuple[int, int]] = (),
        updates: Sequence[BroughtUpdate] = (),
    ) -> tuple[int, int]:
        """Add what the feed in another store holds. Return how many updates and readers are new."""
        arguments: list[Argument] = [last, appended_at, len(readers)]
        for one in readers:
            arguments += [one.reader.name, _packed(one)]
        arguments.append(len(seen))
        for update_id, number in seen:
            arguments += [update_id, number]
        for number, kind, chat, arrived_at, body in updates:
            arguments += [number, kind, "" if chat is None else chat, f"{arrived_at:.3f}", body]
        new_updates, new_readers = await self._run("bring", bot, *arguments)
        return int(new_updates), int(new_readers)

    async def note_error(self, bot: BotId, reader: str, url: str, error: str) -> None:
        await self._run("note_error", bot, reader, url, error[:LONGEST_ERROR])

    async def drop_old(self, bot: BotId) -> Dropped:
        return _dropped(await self._run("drop_old", bot))

    async def forget(self, bot: BotId, reader: str) -> bool:
        return bool(await self._run("forget", bot, reader))

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> int:
        bots = await self.bots() if bot is None else [bot]
        return sum([await self._by_pages("erase", one, str(chat)) for one in bots])

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        return self._watchers.add(bot, callback)

    async def _by_pages(self, step: str, bot: BotId, what: str) -> int:
        total = place = 0
        while True:
            count, following = await self._run(step, bot, what, place)
            total, place = total + int(count), int(following)
            if not place:
                return total

    async def _run(self, step: str, bot: BotId, *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        key = self._connection.key
        own = [key(f"feed:{bot}:{part}") for part in KEYS[:5]]
        bounds = (update_feed.FEED_SECONDS, update_feed.MAX_FED_UPDATES, update_feed.MAX_READERS)
        names = [*own, key("feed:bots"), key(CHANNEL)]
        return await self._connection.script(SCRIPTS[step], names, bot, *bounds, *args)

    def _on_published(self, message: bytes) -> None:
        if message == MAYBE_MISSED:
            self._watchers.tell_all()
        else:
            self._watchers.tell(BotId(int(message)))


def _packed(one: BroughtReader) -> bytes:
    reader = one.reader
    fields: dict[str, Any] = {
        "position": reader.position,
        "seen_at": one.seen_at,
        "kinds": ",".join(reader.kinds),
        "poll": "",
    }
    if (target := reader.target) is not None:
        fields |= {"url": target.url, "error_at": target.error_at, "error": target.error}
        fields |= {} if target.secret is None else {"secret": target.secret}
    return msgspec.msgpack.encode(fields)


def _public(name: str, stored: _StoredReader) -> FeedReader:
    return FeedReader(name, stored.position, _split(stored.kinds), stored.target())


def _kinds(kinds: Kinds | None) -> str:
    return "" if kinds is None else f"={','.join(kinds)}"


def _split(kinds: str) -> Kinds:
    return tuple(kinds.split(",")) if kinds else ()


def _dropped(reply: Sequence[Any]) -> Dropped:
    lost, forgotten = reply
    names: Iterable[bytes] = lost[::2]
    return Dropped(
        {name.decode(): int(count) for name, count in sorted(zip(names, lost[1::2], strict=True))},
        sorted(name.decode() for name in forgotten),
    )
