"""The broadcasts of a store as operators see them: listed, found by name, paused, resumed and cancelled.

From any process: what is asked of a broadcast reaches the process that runs it through the store.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec.structs import replace

from tidegate.broadcast.message import dedup_prefix
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ConflictError, StoreError, TidegateError, UnknownNameError
from tidegate.model import BotId, State, TicketId
from tidegate.outbox.campaigns import CampaignRecord, CampaignStore, CampaignWish
from tidegate.outbox.port import Outbox
from tidegate.outbox.transitions import DEAD_LETTER_STATES
from tidegate.tasks import BackgroundTasks

HEARD_WITHIN: Final = 10.0  # seconds in which a running broadcast does what is asked
LOOK_SECONDS: Final = 0.5
ENDED: Final = frozenset(("finished", "cancelled", "failed"))
DONE: Final[dict[CampaignWish, frozenset[str]]] = {
    "pause": frozenset(("paused", "delivering")) | ENDED,
    "run": frozenset(("running", "delivering")) | ENDED,
    "cancel": frozenset(("delivering",)) | ENDED,
}
UNSENT: Final = frozenset((State.QUEUED, State.RETRY))
CANCELLED_AT_ONCE: Final = 500
COUNTING_SHARE: Final = 0.05  # of the time, at most, goes into counting for those who do not wait for it

CampaignKey = tuple[BotId, str]
Tally = dict[tuple[State, str | None], int]  # of messages, by state and reason


class CampaignControl:
    """Broadcasts are known by name, and by bot where several have the same name.

    The messages of a broadcast that no process runs are counted in the outbox, which takes seconds for a
    million. With `patience`, a verb waits so many seconds for that, and else gives the latest counts.
    """

    def __init__(self, store: CampaignStore, outbox: Outbox, clock: Clock) -> None:
        self._store = store
        self._outbox = outbox
        self._clock = clock
        self._counter = MessageCounter(outbox, clock)

    async def all(self, patience: float | None = None) -> list[CampaignRecord]:
        """Return the broadcasts as they are now, the oldest first."""
        records = await self._store.all()
        self._counter.keep_only({(one.bot, one.name) for one in records})
        until = None if patience is None else self._clock.monotonic() + patience
        found = []
        for record in records:
            left = None if until is None else max(0.0, until - self._clock.monotonic())
            found.append(await self._refreshed(record, left))
        return found

    async def find(self, name: str, bot: int | None = None, patience: float | None = None) -> CampaignRecord:
        """Return a broadcast as it is now. Raises UnknownNameError, and BadInputError if several have it."""
        found = [
            one for one in await self._store.all() if one.name == name and (bot is None or one.bot == bot)
        ]
        if not found:
            raise UnknownNameError(f"no broadcast {name} is known here: see tidegate broadcast list")
        if len(found) > 1:
            bots = ", ".join(str(one.bot) for one in found)
            raise BadInputError(f"several bots have a broadcast {name}: say which bot, one of {bots}")
        return await self._refreshed(found[0], patience)

    async def steer(self, name: str, wish: CampaignWish, bot: int | None = None) -> CampaignRecord:
        """Ask something of a broadcast, and wait until it is done; return the broadcast after that.

        One whose process has ended is cancelled here; anything else is done when it is resumed. Raises
        BadInputError if it cannot be done to this broadcast, TidegateError if its process does not answer.
        """
        record = await self.find(name, bot, LOOK_SECONDS)
        _check(record, wish)
        if wish == "cancel" and record.state in {"stopped", "delivering", "cancelled"}:
            return await self._cancel_unattended(record)
        await self._store.ask(record.bot, record.name, wish)
        if record.state == "stopped":
            return record
        until = self._clock.monotonic() + HEARD_WITHIN
        while (record := await self.find(record.name, record.bot, LOOK_SECONDS)).state not in DONE[wish]:
            if self._clock.monotonic() > until:
                raise TidegateError(
                    f"broadcast {record.name} was asked and is still {record.state}:"
                    " its process does not answer"
                )
            await self._clock.sleep(LOOK_SECONDS)
        return record

    async def reasons(self, record: CampaignRecord, patience: float) -> dict[str, int] | None:
        """Return how many messages of a broadcast are dead or parked, by reason, as of the latest count.

        None: they were not counted yet, and that takes longer than `patience` seconds.
        """
        tally = await self._counter.latest(record, patience)
        if tally is None:
            return None
        found: Counter[str] = Counter()
        for (state, reason), count in tally.items():
            if state in DEAD_LETTER_STATES:
                found[reason or state.value] += count
        return dict(found.most_common())

    async def close(self) -> None:
        await self._counter.close()

    async def _refreshed(self, record: CampaignRecord, patience: float | None) -> CampaignRecord:
        """Return the record as it is now."""
        now = self._clock.now()
        record = record.at(now)
        if record.state not in {"delivering", "stopped", "cancelled"} or not record.counts.get("waiting"):
            return record
        counter = self._counter
        tally = await (counter.tally(record) if patience is None else counter.latest(record, patience))
        if tally is None:
            return record
        counts = counted(record, tally)
        if counts["waiting"] or record.state != "delivering":
            return replace(record, counts=counts)
        ended = replace(record, state="finished", ended_at=now, changed_at=now, counts=counts)
        await self._store.save(ended)
        return ended

    async def _cancel_unattended(self, record: CampaignRecord) -> CampaignRecord:
        """Cancel a broadcast that no process runs, with its messages that wait, in short steps.

        If this process ends before that is done, the broadcast can be cancelled again.
        """
        now = self._clock.now()
        ended = replace(record, state="cancelled", ended_at=now, changed_at=now)
        await self._store.save(ended, "run")  # first, so that no process resumes it meanwhile
        ids: list[TicketId] = []
        async for ticket in self._outbox.keyed(record.bot, dedup_prefix(record.name), UNSENT):
            ids.append(ticket)
            if len(ids) == CANCELLED_AT_ONCE:
                await self._outbox.cancel(ids)
                ids = []
        await self._outbox.cancel(ids)
        ended = replace(
            ended, counts=counted(ended, await self._counter.tally(ended)), changed_at=self._clock.now()
        )
        await self._store.save(ended)
        return ended


def _check(record: CampaignRecord, wish: CampaignWish) -> None:
    is_cancelled_in_part = record.state == "cancelled" and record.counts.get("waiting")
    if record.has_ended and not (wish == "cancel" and is_cancelled_in_part):
        raise ConflictError(f"broadcast {record.name} is {record.state}: nothing of it is left to send")
    if record.state == "delivering" and wish != "cancel":
        raise ConflictError(
            f"all messages of broadcast {record.name} are in the queue already: hold the whole bot with "
            f"tidegate queue pause --bot {record.bot}, or cancel the broadcast"
        )


class _LatestTally(NamedTuple):
    """`until`: as long as it is good enough for those who do not wait, in monotonic time."""

    tally: Tally
    until: float


class MessageCounter:
    """Counts the messages of broadcasts in the outbox, one broadcast at a time."""

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._turn = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._running: dict[CampaignKey, asyncio.Task[None]] = {}
        self._latest: dict[CampaignKey, _LatestTally] = {}

    async def latest(self, record: CampaignRecord, patience: float) -> Tally | None:
        """Return the latest tally, if it is fresh; else count, for so many seconds.

        If that takes longer, it goes on, and the latest tally is returned; None if there is none yet.
        """
        key = record.bot, record.name
        latest = self._latest.get(key)
        if latest is None or self._clock.monotonic() >= latest.until:
            task = self._running.get(key) or self._start(key, record)
            with suppress(TimeoutError):
                async with self._clock.timeout(patience):
                    await asyncio.wait([task])
            latest = self._latest.get(key)
        return None if latest is None else latest.tally

    def keep_only(self, known: set[CampaignKey]) -> None:
        """Forget the counts of other broadcasts."""
        self._latest = {key: latest for key, latest in self._latest.items() if key in known}

    async def close(self) -> None:
        await self._tasks.stop()

    def _start(self, key: CampaignKey, record: CampaignRecord) -> asyncio.Task[None]:
        task = self._tasks.start(self._count_and_keep(key, record), f"counts {record.name}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _count_and_keep(self, key: CampaignKey, record: CampaignRecord) -> None:
        async with self._turn:
            began = self._clock.monotonic()
            with suppress(StoreError):  # whoever asks for it now gets the one before
                tally = await self.tally(record)
                ended = self._clock.monotonic()
                self._latest[key] = _LatestTally(tally, ended + (ended - began) / COUNTING_SHARE)

    async def tally(self, record: CampaignRecord) -> Tally:
        return await self._outbox.tally(record.bot, dedup_prefix(record.name))


def counted(record: CampaignRecord, tally: Tally) -> dict[str, int]:
    """Return the counts of a broadcast, with those of its messages as the outbox knows them."""
    found = dict.fromkeys(("delivered", "dead", "parked", "expired", "cancelled", "waiting"), 0)
    for (state, _), count in tally.items():
        name = "cancelled" if state == State.REPLACED else state.value
        found[name if name in found else "waiting"] += count
    accepted = max(record.counts.get("accepted", 0), sum(found.values()))
    forgotten = accepted - sum(found.values())
    return record.counts | found | {"accepted": accepted, "forgotten": forgotten}
