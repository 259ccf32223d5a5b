"""The inbox in Redis: any number of processes accept, claim and settle; each step is one script."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.inbox import (
    DEDUP_SECONDS,
    MAX_PARKED_PER_SOURCE,
    MAX_WAITING_ITEMS,
    SUSPECT_CRASHES,
    ClaimedItem,
    Inbox,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    bot_source,
    check_replayable,
    full_error,
)
from tidegate.stores.group_commit import SerialGroupCommit
from tidegate.stores.redis import inbox_codec
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.inbox_codec import UnreadableUpdate, place_and_token
from tidegate.stores.redis.leases import RedisLeases
from tidegate.stores.redis.scripts import load_scripts
from tidegate.tasks import BackgroundTasks

CHANNEL: Final = "inbox:channel"
# The keys by their names in Lua. The first is the outbox's, which notes a restart of Redis.
KEYS: Final = {"outbox": "meta"} | {
    name: f"inbox:{name}"
    for name in (
        "meta",
        "bodies",
        "queue",
        "ready",
        "suspects",
        "later",
        "leases",
        "held",
        "tries",
        "parked",
        "letters",
        "letters_of",
        "reasons",
        "channel",
    )
}
LEASE_SECONDS: Final = 8.0  # after which an update whose process is silent is given to another
SCRIPTS: Final = load_scripts(
    "inbox",
    list(KEYS),
    shared=("inbox/shared/step", "inbox/shared/lanes"),
    constants={"SUSPECT_CRASHES": SUSPECT_CRASHES, "LEASE_SECONDS": LEASE_SECONDS},
)

log = logging.getLogger("tidegate.inbound")

RENEW_EVERY: Final = 2.5  # seconds
RENEW_RETRY_AFTER: Final = 0.5  # seconds after a try that failed
RENEWED_PER_STEP: Final = 500

# Renews the leases of these places, each with its token; returns which are lost, counted from 0.
RenewLeases = Callable[[list[tuple[str, str]]], Awaitable[list[int]]]


class ClaimRenewer:
    """Renews the leases of the items that this process has claimed, between `start` and `stop`."""

    def __init__(self, clock: Clock, renew: RenewLeases) -> None:
        self._clock = clock
        self._renew = renew
        self._claimed: dict[str, ClaimedItem] = {}
        self._ending: set[str] = set()  # may have ended in Redis already
        self._renewing = BackgroundTasks()
        self._renewed_at = 0.0  # monotonic

    def start(self) -> None:
        self._renewing.start(self._renew_on(), "leases of updates")

    async def stop(self) -> None:
        await self._renewing.stop()
        self._claimed.clear()

    def add(self, claimed: Iterable[ClaimedItem]) -> None:
        self._claimed.update((one.id, one) for one in claimed)

    @contextmanager
    def ending(self, claimed: Iterable[ClaimedItem]) -> Iterator[None]:
        """Surrounds the step that ends these. If it fails, they are renewed as before."""
        ids = {one.id for one in claimed}
        self._ending |= ids
        try:
            yield
        finally:
            self._ending -= ids

    def forget(self, claimed: Iterable[ClaimedItem]) -> None:
        for one in claimed:
            self._claimed.pop(one.id, None)

    async def _renew_on(self) -> None:
        while True:
            try:
                await self._renew_all()
            except StoreError:  # reported by the next claim
                await self._clock.sleep(RENEW_RETRY_AFTER)
            else:
                await self._clock.sleep(RENEW_EVERY)

    async def catch_up(self) -> None:
        """Renew before a claim, if late: a process must not take its own updates for those of a dead one."""
        if self._claimed and self._clock.monotonic() - self._renewed_at > 2 * RENEW_EVERY:
            await self._renew_all()

    async def _renew_all(self) -> None:
        claimed, now = list(self._claimed.values()), self._clock.monotonic()
        for first in range(0, len(claimed), RENEWED_PER_STEP):
            some = claimed[first : first + RENEWED_PER_STEP]
            lost = [some[place] for place in await self._renew([place_and_token(one) for one in some])]
            self._lose([one for one in lost if one.id in self._claimed and one.id not in self._ending])
        self._renewed_at = now

    def _lose(self, lost: list[ClaimedItem]) -> None:
        self.forget(lost)
        if lost:
            log.warning(
                "%d updates were given to another process, as this one was not heard of for too long: their"
                " handlers run twice",
                len(lost),
            )


ITEMS_PER_STEP: Final = 500  # Redis is for others too
POLL_EVERY: Final = 1.0  # seconds: the most that a lost message costs
SHORTEST_POLL: Final = 0.05  # seconds, even if more is due than one step does


class RedisInbox(Inbox):
    """The connection is the outbox's, which opens it first and closes it last.

    Accepts whether it is open or not; claimed items are renewed as long as it is open.
    """

    def __init__(self, connection: RedisConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._keys = [connection.key(name) for name in KEYS.values()]
        self.leases = RedisLeases(connection, connection.me, "inbox:name:{}".format)
        self._accepting: SerialGroupCommit[InboxItem, list[bool] | None] = SerialGroupCommit(
            self._accept, ITEMS_PER_STEP, "inbox accepts"
        )
        self._ending: SerialGroupCommit[ClaimedItem, None] = SerialGroupCommit(
            self._end, ITEMS_PER_STEP, "inbox settles"
        )
        self._renewer = ClaimRenewer(clock, self._renew)
        self._claiming = asyncio.Lock()
        self._unheard: set[str] = set()  # tokens of claims whose answers did not come
        self._tasks = BackgroundTasks()
        self._changed = asyncio.Event()
        self._sources: set[str] = set()  # of the latest claim
        self._delay = POLL_EVERY
        self._unsubscribe: Callable[[], object] | None = None

    async def open(self) -> None:
        if self._unsubscribe is None:
            await self.stats()  # raises if Redis is away
            self._unsubscribe = self._connection.subscribe(CHANNEL, self._on_published)
            self._renewer.start()

    async def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        await asyncio.gather(self._accepting.join(), self._ending.join(), self._tasks.join())
        with suppress(StoreError):  # their leases run out
            async with self._claiming:
                await self._take_back()
        await self._renewer.stop()

    async def _run(self, step: str, *args: Argument, keys: Sequence[str] = ()) -> Any:  # noqa: ANN401  (Redis's)
        names = [*self._keys, *(self._connection.key(key) for key in keys)]
        return await self._connection.script(SCRIPTS[step], names, self._connection.me, *args)

    async def accept(self, items: Sequence[InboxItem]) -> list[bool]:
        if not items:
            return []
        accepted = await self._accepting.ask(items)
        if accepted is None:
            raise full_error(items)
        return accepted

    async def _accept(self, groups: list[Sequence[InboxItem]]) -> list[list[bool] | None]:
        now, known_by, args = self._clock.now(), dict[str, int](), list[Argument]()
        for item in (one for group in groups for one in group):
            key, bit = inbox_codec.seen_key(item)
            place = known_by.setdefault(key, len(known_by) + 1)
            args += [inbox_codec.lane_prefix(item), inbox_codec.encode_update(item, now), place, bit]
        sizes = " ".join(str(len(group)) for group in groups)
        replies = await self._run(
            "accept", MAX_WAITING_ITEMS, sizes, int(DEDUP_SECONDS), *args, keys=list(known_by)
        )
        self._changed.set()
        return [[fresh == 1 for fresh in reply] if reply else None for reply in replies]

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        if not sources or limit < 1:
            return []
        token = secrets.token_hex(6)
        claim = self._claim(token, sources, limit, suspects)
        claiming = self._tasks.start(claim, "claim updates", awaited=True)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._tasks.start(self._undo(claiming, token), "updates go back")
            raise

    async def _claim(
        self, token: str, sources: Collection[InboxSource], limit: int, suspects: int
    ) -> list[ClaimedItem]:
        async with self._claiming:
            await self._take_back()
            await self._renewer.catch_up()
            self._changed.clear()
            self._sources = {inbox_codec.without_separators(source) for source in sources}
            self._unheard.add(token)
            delay, rows = await self._run("claim", limit, suspects, token, *self._sources)
            self._unheard.discard(token)
            decoded = [inbox_codec.decode_claimed(row, token) for row in rows]
            claimed = [one for one in decoded if isinstance(one, ClaimedItem)]
            self._renewer.add(claimed)
            self._delay = max(SHORTEST_POLL, min(POLL_EVERY, float(delay))) if delay else POLL_EVERY
            for one in decoded:
                if isinstance(one, UnreadableUpdate):
                    await self._set_aside(one, token)
            return claimed

    async def _set_aside(self, one: UnreadableUpdate, token: str) -> None:
        log.error("an update in Redis is parked as %s: %s", one.key, one.why)
        why = inbox_codec.encode_reason(self._clock.now(), one.why)
        with suppress(StoreError):  # it is claimed again when its lease runs out
            await self._run("park", one.place, token, one.key, why, MAX_PARKED_PER_SOURCE)
        self._changed.set()

    async def _take_back(self) -> None:
        """Return the updates of claims whose answers were not heard: nobody handles them."""
        tokens = list(self._unheard)
        if tokens:
            await self._run("take_back", *tokens)
            self._unheard.difference_update(tokens)

    async def _undo(self, claiming: asyncio.Task[list[ClaimedItem]], token: str) -> None:
        """The caller of a claim is gone: its updates go back."""
        await asyncio.wait([claiming])
        if not claiming.cancelled() and claiming.exception() is None:
            self._renewer.forget(claiming.result())
            self._unheard.add(token)
        with suppress(StoreError):  # repeated by the next claim
            async with self._claiming:
                await self._take_back()

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(self._delay):
                await self._changed.wait()

    def _on_published(self, message: bytes) -> None:
        """A process has freed lanes of these sources. An empty message: one may have been missed."""
        process, *sources = message.decode().split("\n")
        if not sources or (process != self._connection.me and not self._sources.isdisjoint(sources)):
            self._changed.set()

    async def _renew(self, claimed: list[tuple[str, str]]) -> list[int]:
        lost: list[int] = await self._run("renew", *(part for pair in claimed for part in pair))
        return lost

    async def done(self, claimed: Sequence[ClaimedItem]) -> None:
        if claimed:
            await self._ending.ask(claimed)

    async def _end(self, groups: list[Sequence[ClaimedItem]]) -> list[None]:
        claimed = [one for group in groups for one in group]
        with self._renewer.ending(claimed):
            await self._run("done", *(part for one in claimed for part in inbox_codec.place_and_token(one)))
        self._settled(claimed)
        return [None] * len(groups)

    async def release(self, claimed: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        with self._renewer.ending([claimed]):
            await self._run("release", *inbox_codec.place_and_token(claimed), after, int(failed))
        self._settled([claimed])

    async def park(self, claimed: ClaimedItem, reason: str) -> None:
        why = inbox_codec.encode_reason(self._clock.now(), reason)
        with self._renewer.ending([claimed]):
            await self._run(
                "park", *inbox_codec.place_and_token(claimed), claimed.item.key, why, MAX_PARKED_PER_SOURCE
            )
        self._settled([claimed])

    def _settled(self, claimed: Sequence[ClaimedItem]) -> None:
        self._renewer.forget(claimed)
        self._changed.set()

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        if limit < 1:
            return []
        found = await self._run(
            "parked", "" if source is None else inbox_codec.without_separators(source), limit
        )
        return [inbox_codec.decode_parked(*one) for one in found]

    async def replay(self, source: InboxSource, key: str) -> bool:
        name = (inbox_codec.without_separators(source), key)
        if parked := await self._run("parked_one", *name):
            check_replayable(inbox_codec.decode_parked(*parked))
        found = bool(await self._run("replay", *name))
        self._changed.set()
        return found

    async def drop(self, source: InboxSource, key: str) -> bool:
        return bool(await self._run("drop", inbox_codec.without_separators(source), key))

    async def bring(self, parked: Sequence[ParkedItem]) -> int:
        """Park items as they were parked in another store, the oldest first; return how many are new."""
        arguments: list[Argument] = []
        for one in parked:
            why = inbox_codec.encode_reason(one.parked_at, one.reason)
            body = inbox_codec.encode_update(one.item, one.arrived_at)
            arguments += [inbox_codec.lane_prefix(one.item), one.item.key, body, why]
        return int(await self._run("bring", MAX_PARKED_PER_SOURCE, *arguments))

    async def erase(self, chat: str, bot: int | None = None) -> int:
        """Erase the updates of a chat that wait, of one bot or of all; return how many there were."""
        source = "" if bot is None else bot_source(bot)
        erased = 0
        while bot is not None or (source := (await self._run("source_after", source)).decode()):
            if source.startswith("bot:"):
                step = (source, inbox_codec.without_separators(chat), ITEMS_PER_STEP)
                while count := int(await self._run("erase", *step)):
                    erased += count
            if bot is not None:
                break
        return erased

    async def waiting(self, source: InboxSource) -> int:
        return int(await self._run("waiting", inbox_codec.without_separators(source)))

    async def lane_length(self, item: InboxItem) -> int:
        return int(await self._run("lane_length", inbox_codec.lane_prefix(item)))

    async def stats(self) -> InboxStats:
        return InboxStats(*await self._run("stats"))
