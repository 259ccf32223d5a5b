"""The update feed in memory, for tests and for bots that may forget."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.update_feed import (
    DEFAULT_READER,
    FEED_SECONDS,
    MAX_FED_UPDATES,
    MAX_READERS,
    SEEN_NUMBERS,
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
    StoredReader,
    UpdateFeed,
    is_wanted,
    moved_position,
    refusal_of_unknown,
    start_position,
)
from tidegate.leader_lease import UncontestedLeases
from tidegate.model import BotId, ChatId


class MemoryUpdateFeed(UpdateFeed):
    def __init__(self, clock: Clock) -> None:
        self.leases = UncontestedLeases()
        self._clock = clock
        self._feeds: dict[BotId, _BotFeed] = {}
        self._watchers = FeedWatchers()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def append(self, bot: BotId, updates: Sequence[NewUpdate]) -> Appended:
        feed, now = self._feed(bot), self._clock.now()
        is_new = feed.append(updates, now)
        dropped = feed.drop_old(now)
        if any(is_new):
            self._watchers.tell(bot)
        return Appended(is_new, dropped)

    async def read(self, bot: BotId, reader: str, request: ReadRequest) -> FeedPage:
        return self._feed(bot).read(reader, request, self._clock.now())

    async def readers(self, bot: BotId) -> list[FeedReader]:
        feed = self._feeds.get(bot)
        return [] if feed is None else [one.public() for _, one in sorted(feed.readers.items())]

    async def bots(self) -> list[BotId]:
        return sorted(self._feeds)

    async def pending(self, bot: BotId, reader: str) -> int:
        feed = self._feeds.get(bot)
        return 0 if feed is None or reader not in feed.readers else len(feed.waiting(feed.readers[reader]))

    async def set_target(
        self,
        bot: BotId,
        reader: str,
        target: PushTarget | None,
        *,
        kinds: Kinds | None = None,
        drops_pending: bool = False,
    ) -> bool:
        feed = self._feed(bot)
        found = feed.find(reader, None, self._clock.now())
        if found is None:
            return False
        found.set_target(target, kinds)
        if drops_pending:
            found.position = feed.last + 1
        return True

    async def note_error(self, bot: BotId, reader: str, url: str, error: str) -> None:
        feed = self._feeds.get(bot)
        found = None if feed is None else feed.readers.get(reader)
        if found is not None:
            found.note_error(url, error, self._clock.now())

    async def drop_old(self, bot: BotId) -> Dropped:
        feed = self._feeds.get(bot)
        return Dropped() if feed is None else feed.drop_old(self._clock.now())

    async def forget(self, bot: BotId, reader: str) -> bool:
        feed = self._feeds.get(bot)
        return feed is not None and feed.forget(reader)

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> int:
        return sum(feed.erase(chat) for one, feed in self._feeds.items() if bot in {None, one})

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        return self._watchers.add(bot, callback)

    def _feed(self, bot: BotId) -> "_BotFeed":
        """Return a feed, which begins when it is first asked for."""
        if bot not in self._feeds:
            self._feeds[bot] = _BotFeed(self._clock.now())
        return self._feeds[bot]


class _Held(msgspec.Struct, frozen=True):
    arrived_at: float
    update: NewUpdate


class _BotFeed:
    def __init__(self, now: float) -> None:
        self.last = 0
        self.readers = {DEFAULT_READER: StoredReader(DEFAULT_READER, 0, now)}
        self._numbers: list[int] = []  # of what is held, rising
        self._held: dict[int, _Held] = {}
        self._seen: dict[int, int] = {}  # number by Telegram's update_id; the numbers rise
        self._appended_at = 0.0

    def append(self, updates: Sequence[NewUpdate], now: float) -> list[bool]:
        if now - self._appended_at > FEED_SECONDS:
            self._seen.clear()
        self._appended_at = now
        is_new = []
        for update in updates:
            is_new.append(update.update_id not in self._seen)
            if is_new[-1]:
                self.last = max(self.last + 1, update.update_id)
                self._held[self.last] = _Held(now, update)
                self._numbers.append(self.last)
                self._seen[update.update_id] = self.last
        while self._seen and self._seen[first := next(iter(self._seen))] <= self.last - SEEN_NUMBERS:
            del self._seen[first]
        return is_new

    def drop_old(self, now: float) -> Dropped:
        forgotten = [
            name
            for name, one in self.readers.items()
            if one.target is None and now - one.seen_at > FEED_SECONDS
        ]
        for name in forgotten:
            del self.readers[name]
        count = max(0, len(self._numbers) - MAX_FED_UPDATES)
        while count < len(self._numbers) and now - self._arrived_at(count) > FEED_SECONDS:
            count += 1
        end = self._numbers[count] if count < len(self._numbers) else self.last + 1
        lost = {name: len(gone) for name, one in self.readers.items() if (gone := self.waiting(one, end))}
        self._delete_before(end)
        return Dropped(lost, sorted(forgotten))

    def forget(self, name: str) -> bool:
        is_gone = self.readers.pop(name, None) is not None
        self._delete_confirmed()
        return is_gone

    def find(self, name: str, offset: int | None, now: float) -> StoredReader | None:
        """Return the reader, a new one if there is none; None if there are too many."""
        if name not in self.readers:
            if len(self.readers) >= MAX_READERS:
                return None
            self.readers[name] = StoredReader(name, start_position(name, offset, self.last), now)
        return self.readers[name]

    def read(self, name: str, request: ReadRequest, now: float) -> FeedPage:
        dropped = self.drop_old(now) if request.begins else Dropped()
        known = self.readers.get(name)
        refusal = refusal_of_unknown(request) if known is None else known.refusal(request)
        if refusal is not None:
            return FeedPage(refusal, dropped=dropped)
        reader = known or self.find(name, request.offset, now)
        if reader is None:
            return FeedPage("crowded", dropped=dropped)
        reader.seen_at, reader.poll = now, request.poll
        has_new_kinds = known is None or request.kinds not in {None, reader.kinds}
        reader.kinds = reader.kinds if request.kinds is None else request.kinds
        self._move(reader, request.offset, is_first=known is None)
        found = self.waiting(reader, limit=request.limit)
        reader.position = found[0] if found else self.last + 1
        self._delete_confirmed()
        return FeedPage(
            updates=[FedUpdate(number, self._held[number].update.body) for number in found],
            target=reader.target,
            last=self.last,
            readers=len(self.readers),
            has_new_kinds=has_new_kinds,
            dropped=dropped,
        )

    def waiting(self, reader: StoredReader, end: int | None = None, limit: int | None = None) -> list[int]:
        """Return the numbers before `end` that the reader has yet to confirm."""
        numbers = self._numbers
        stop = len(numbers) if end is None else bisect_left(numbers, end)
        candidates = (numbers[place] for place in range(bisect_left(numbers, reader.position), stop))
        wanted = (one for one in candidates if is_wanted(self._held[one].update.kind, reader.kinds))
        return list(islice(wanted, limit))

    def erase(self, chat: ChatId) -> int:
        theirs = {number for number, held in self._held.items() if str(held.update.chat) == str(chat)}
        for number in theirs:
            del self._held[number]
        self._numbers = [number for number in self._numbers if number not in theirs]
        return len(theirs)

    def _move(self, reader: StoredReader, offset: int | None, *, is_first: bool) -> None:
        if offset is not None and offset < 0:
            reader.position = 0 if is_first else reader.position
            reader.position = next(iter(self.waiting(reader)[offset:]), reader.position)
        else:
            reader.position = moved_position(reader.position, offset, self.last)

    def _arrived_at(self, place: int) -> float:
        return self._held[self._numbers[place]].arrived_at

    def _delete_confirmed(self) -> None:
        if self.readers:
            self._delete_before(min(one.position for one in self.readers.values()))

    def _delete_before(self, end: int) -> None:
        count = bisect_left(self._numbers, end)
        for number in self._numbers[:count]:
            del self._held[number]
        del self._numbers[:count]
