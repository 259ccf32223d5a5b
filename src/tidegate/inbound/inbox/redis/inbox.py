"""Arrivals in Redis: any number of processes accept, claim and settle. Each step is one script."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import StoreError, StoreFullError
from tidegate.inbound.arrivals import Arrival, Held, Parked, Source
from tidegate.inbound.inbox.base import MOST, PARKED_AT_MOST, REMEMBER, Inbox, InboxStats
from tidegate.inbound.inbox.redis import rows
from tidegate.inbound.inbox.redis.gathering import Gathering
from tidegate.inbound.inbox.redis.holding import Holding
from tidegate.inbound.inbox.redis.scripts import CHANNEL, keys_of, load
from tidegate.outbox.redis.link import Argument, Link

SCRIPTS: Final = load()
LOOK: Final = 1.0  # seconds: a message that was lost costs no more
SOONEST: Final = 0.05  # seconds until it looks again, though more is due than one step does


class RedisInbox(Inbox):
    """The `link` is the outbox's, which opens it and closes it last.

    Accepts whether it is open or not; what it claims is held as long as it is open.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._keys = keys_of(link)
        self._accepting: Gathering[Arrival, list[bool] | None] = Gathering(self._accept)
        self._ending: Gathering[Held, None] = Gathering(self._end)
        self._holding = Holding(clock, self._renew)
        self._claiming = asyncio.Lock()
        self._unheard: set[str] = set()  # tokens of claims whose answers did not come
        self._undoing: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._sources: set[str] = set()  # of the latest claim
        self._delay = LOOK
        self._unfollow: Callable[[], object] | None = None

    async def open(self) -> None:
        if self._unfollow is None:
            await self.stats()  # if Redis is away, it is not open
            self._unfollow = self._link.follow(CHANNEL, self._heard)
            self._holding.start()

    async def close(self) -> None:
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None
        await asyncio.gather(self._accepting.close(), self._ending.close(), *self._undoing)
        with suppress(StoreError):  # their leases run out
            async with self._claiming:
                await self._take_back()
        await self._holding.stop()

    async def _run(self, step: str, *args: Argument, keys: Sequence[str] = ()) -> Any:  # noqa: ANN401  (Redis's)
        names = [*self._keys, *(self._link.key(key) for key in keys)]
        return await self._link.script(SCRIPTS[step], names, self._link.me, *args)

    # --- in ---

    async def accept(self, arrivals: Sequence[Arrival]) -> list[bool]:
        if not arrivals:
            return []
        accepted = await self._accepting.ask(arrivals)
        if accepted is None:
            raise StoreFullError(f"{MOST} updates wait to be handled: handle them faster, or drop them")
        return accepted

    async def _accept(self, groups: list[Sequence[Arrival]]) -> list[list[bool] | None]:
        now, known_by, told = self._clock.now(), dict[str, int](), list[Argument]()
        for arrival in (one for group in groups for one in group):
            key, bit = rows.memory_of(arrival)
            place = known_by.setdefault(key, len(known_by) + 1)
            told += [rows.line_of(arrival), rows.body_of(arrival, now), place, bit]
        sizes = " ".join(str(len(group)) for group in groups)
        replies = await self._run("accept", MOST, sizes, int(REMEMBER), *told, keys=list(known_by))
        self._news.set()
        return [[fresh == 1 for fresh in reply] if reply else None for reply in replies]

    # --- out ---

    async def claim(self, sources: Collection[Source], limit: int, *, suspects: int) -> list[Held]:
        if not sources or limit < 1:
            return []
        token = secrets.token_hex(6)
        claiming = asyncio.create_task(self._claim(token, sources, limit, suspects))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._later(self._undo(claiming, token))
            raise

    async def _claim(self, token: str, sources: Collection[Source], limit: int, suspects: int) -> list[Held]:
        async with self._claiming:
            await self._take_back()
            await self._holding.catch_up()
            self._news.clear()
            self._sources = {rows.clean(source) for source in sources}
            self._unheard.add(token)
            delay, told = await self._run("claim", limit, suspects, token, *self._sources)
            self._unheard.discard(token)
            held = [rows.held_of(one, token) for one in told]
            self._holding.add(held)
            self._delay = max(SOONEST, min(LOOK, float(delay))) if delay else LOOK
            return held

    async def _take_back(self) -> None:
        """What was given to this process by a step whose answer it did not hear was not handled."""
        tokens = list(self._unheard)
        if tokens:
            await self._run("take_back", *tokens)
            self._unheard.difference_update(tokens)

    async def _undo(self, claiming: asyncio.Task[list[Held]], token: str) -> None:
        """Whoever claimed is gone."""
        await asyncio.wait([claiming])
        if not claiming.cancelled() and claiming.exception() is None:
            self._holding.forget(claiming.result())
            self._unheard.add(token)
        with suppress(StoreError):  # once more with the next claim
            async with self._claiming:
                await self._take_back()

    def _later(self, what: Awaitable[None]) -> None:
        task = asyncio.ensure_future(what)
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(self._delay):
                await self._news.wait()

    def _heard(self, said: bytes) -> None:
        """Who has freed lanes, and whose; nothing if some of it may have been missed."""
        who, *sources = said.decode().split("\n")
        if not sources or (who != self._link.me and not self._sources.isdisjoint(sources)):
            self._news.set()

    async def _renew(self, held: list[tuple[str, str]]) -> list[int]:
        lost: list[int] = await self._run("renew", *(part for pair in held for part in pair))
        return lost

    # --- how it ended ---

    async def done(self, held: Sequence[Held]) -> None:
        if held:
            await self._ending.ask(held)

    async def _end(self, groups: list[Sequence[Held]]) -> list[None]:
        held = [one for group in groups for one in group]
        with self._holding.ending(held):
            await self._run("done", *(part for one in held for part in rows.place_of(one)))
        self._settled(held)
        return [None] * len(groups)

    async def release(self, held: Held, *, after: float = 0.0, failed: bool = False) -> None:
        with self._holding.ending([held]):
            await self._run("release", *rows.place_of(held), after, int(failed))
        self._settled([held])

    async def park(self, held: Held, reason: str) -> None:
        said = rows.reason_of(self._clock.now(), reason)
        with self._holding.ending([held]):
            await self._run("park", *rows.place_of(held), held.arrival.key, said, PARKED_AT_MOST)
        self._settled([held])

    def _settled(self, held: Sequence[Held]) -> None:
        self._holding.forget(held)
        self._news.set()

    # --- those that were given up ---

    async def parked(self, source: Source | None = None, *, limit: int = 100) -> list[Parked]:
        if limit < 1:
            return []
        found = await self._run("parked", "" if source is None else rows.clean(source), limit)
        return [rows.parked_of(*one) for one in found]

    async def replay(self, source: Source, key: str) -> bool:
        found = bool(await self._run("replay", rows.clean(source), key))
        self._news.set()
        return found

    async def drop(self, source: Source, key: str) -> bool:
        return bool(await self._run("drop", rows.clean(source), key))

    async def stats(self) -> InboxStats:
        return InboxStats(*await self._run("stats"))

    # --- names ---

    async def lease(self, name: str, seconds: float) -> bool:
        return bool(await self._run("lease", seconds, keys=[f"inbox:name:{name}"]))

    async def give_back(self, name: str) -> None:
        await self._run("give_back", keys=[f"inbox:name:{name}"])
