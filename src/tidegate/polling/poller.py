"""What all kinds of polling share: lead, read who waits, look at the source, tell.

Subscriptions are in a store, which several processes may share: any of them subscribes, one polls. What a
look finds is noted in the store first and told then, so that it is told whatever happens in between.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypedDict

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError, StoreError
from tidegate.failure import describe_error
from tidegate.polling.failure_log import FailureLog
from tidegate.polling.leading import Leadership
from tidegate.polling.notifier import Notifier, SubscriberCallback
from tidegate.polling.restorer import (
    RESTORE_EVERY,
    RESTORE_GROUP,
    OnProgress,
    RestoreResult,
    StaggeredRestore,
    SubscriptionSource,
    restore_from,
)
from tidegate.polling.stats import PollingStats, PollingTotals
from tidegate.polling.subscriptions import (
    AfterNews,
    News,
    Notify,
    StoredSubscription,
    Subscription,
    Subscriptions,
    check_key,
    check_text,
)
from tidegate.polling.tracker import SubscriptionReader, TrackedSubscriptions
from tidegate.stores.memory.subscriptions import MemorySubscriptions

log = logging.getLogger("tidegate.polling")

STOP_GRACE: Final = 10.0  # seconds that callbacks have to end when the poller stops


class PollerOptions(TypedDict, total=False):
    """What every kind of poller takes besides its own."""

    name: str | None
    notify: Notify | None
    subscriptions: Subscriptions | None
    clock: Clock | None
    restore: bool
    restore_group: int
    restore_every: float
    on_progress: OnProgress | None


class Poller:
    """`async with` it, or `start` and `stop`. Ends only when it is stopped: whatever fails is tried again.

    `name`, if it is not that of its subscriptions, is part of the cause of what its callbacks put into the
    gate: keep it. `notify` is called for whoever has no callback of his own; only this survives a
    restart. Without `subscriptions` they are kept in memory. With `restore` false nobody who is found in the
    store is polled for until `restore()` is called.
    """

    title: ClassVar[str] = "Polling Stats"

    def __init__(
        self,
        *,
        name: str | None = None,
        notify: Notify | None = None,
        subscriptions: Subscriptions | None = None,
        clock: Clock | None = None,
        restore: bool = True,
        restore_group: int = RESTORE_GROUP,
        restore_every: float = RESTORE_EVERY,
        on_progress: OnProgress | None = None,
    ) -> None:
        if name is not None:
            check_text(name, "the name of a poller")
        _check_callback(notify, "notify")
        self._clock = clock or Clock()
        self._subscriptions = subscriptions or MemorySubscriptions(self._clock)
        self.name = name = name or self._subscriptions.name
        self._restores = restore
        self._pace = StaggeredRestore(self._clock, restore_group, restore_every, on_progress)
        self._totals = PollingTotals()
        self._troubles = FailureLog(name)
        self._roster = TrackedSubscriptions()
        self._waiting, self._watched = self._roster.waiting, self._roster.watched
        self._leadership = Leadership(
            self._subscriptions, self._clock, name, troubles=self._troubles, on_wait=self._on_standby
        )
        self._teller = Notifier(
            name,
            self._clock,
            self._subscriptions,
            notify=notify,
            then=self._then,
            on_told=self._roster.told,
            leads=lambda: self._leadership.is_ours,
            totals=self._totals,
            troubles=self._troubles,
        )
        self._reader = SubscriptionReader(
            self._subscriptions, self._clock, self._roster, self._teller, self._admitted
        )
        self._term = 0  # in which the store was read
        self._knows_who_leads = asyncio.Event()
        self._restoring: asyncio.Task[object] | None = None
        self._running: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._asides: set[asyncio.Task[Any]] = set()
        self._notings: dict[int, set[str]] = {}  # keys of which news are being noted

    # Subscribers

    async def subscribe(
        self, key: str | int, data: dict[str, Any] | None = None, *, callback: Notify | None = None
    ) -> None:
        """Durable when it returns. One who is subscribed already waits anew, with the new data.

        A callback is known to this process alone, and is called only if this process polls.
        """
        key = check_key(key)
        self._teller.waiters.made.discard(key)
        await self._subscribe(key, data, callback)

    async def _subscribe(
        self, key: str, data: dict[str, Any] | None = None, callback: Notify | None = None
    ) -> None:
        _check_callback(callback, "callback")
        before, outdated = self._teller.given.pop(key, None), self._teller.number_of(key)
        self._give(key, callback and SubscriberCallback(callback))
        if not self._leadership.waits:
            self._roster.expect(key)
        try:
            await self._subscriptions.add([Subscription(key, data or {}, self._clock.now())])
        except BaseException:
            self._give(key, before)
            self._roster.unread.discard(key)
            raise
        self._outdate(key)
        self._teller.drop_until(key, outdated)

    async def unsubscribe(self, key: str | int) -> bool:
        """Whether he was subscribed. A callback that runs comes to its end; none is called after it."""
        key = check_key(key)
        was_there = await self._subscriptions.remove([key]) > 0
        self._outdate(key)
        self._reader.forget([key])
        return was_there

    async def wait(self, key: str | int) -> Any:  # noqa: ANN401  (whatever is fetched)
        """The value for which others get a callback; subscribes if need be. Only in the process that polls.

        Raises ClosedError if it is unsubscribed, its record is gone, the poller stops, or another process
        polls by now. The last one that is cancelled takes back the subscription that was made for them.
        """
        key = check_key(key)
        await self._know_who_leads()
        if self._leadership.waits:
            raise NotTheSenderError(f"another process polls for {self.name}: wait there, or give it notify=")
        teller = self._teller
        is_there = key in self._roster or key in teller.telling or key in teller.untold
        future = teller.waiters.join(key)
        try:
            if not is_there:
                teller.waiters.made.add(key)
                await self._subscribe(key)
            teller.tell_again(key)
            return await future
        finally:
            was_made = teller.waiters.leave(key, future)
            is_given_up = future.cancelled() or not future.done()
            if was_made and is_given_up and key not in teller.given:
                self._aside(self.unsubscribe(key))

    @property
    def waiting(self) -> Mapping[str, Subscription]:
        """Those who are polled for."""
        return self._waiting

    @property
    def watched(self) -> Mapping[str, Subscription]:
        """Those who were told, and are watched in case that it does not stay so."""
        return self._watched

    # Running

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def is_leading(self) -> bool:
        """Whether it is this process that polls."""
        return self._leadership.is_ours and self._has_read

    async def start(self) -> None:
        """A store or an API that cannot be reached is no reason not to start."""
        self.begin()

    def begin(self) -> None:
        """As `start`, for where nothing can be awaited."""
        if not self.is_running:
            self._running = asyncio.create_task(self._run(), name=f"tidegate: {self.name}")

    async def stop(self) -> None:
        """Callbacks that run have a while to end; then another process may poll.

        A callback may stop it too, and does not wait: it stops when that callback has ended.
        """
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            self._stopping = asyncio.create_task(self._stop(running), name=f"tidegate: {self.name} stops")
            self._stopping.add_done_callback(self._ended)
        if self._stopping is not None and not self._teller.is_caller:
            await asyncio.shield(self._stopping)

    async def _stop(self, running: asyncio.Task[None]) -> None:
        await _end([running, *self._asides])
        await self._end()
        await self._teller.stop(STOP_GRACE)
        await self._leadership.give_up()
        self._roster.clear()
        self._term = 0
        self._knows_who_leads.clear()

    async def restore(
        self,
        source: SubscriptionSource | None = None,
        *,
        group: int | None = None,
        every: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> RestoreResult:
        """Let those wait again who waited before: `group` of them every `every` seconds, or as at the start.

        Without a source: those in the store whom nobody has restored yet; this process must run, and if
        another one polls, there are none. With a source: those who are in it and not in the store.
        """
        pace = self._pace.like(group, every, on_progress)
        if source is not None:
            return await restore_from(source, self._subscriptions, self._clock, pace, self._reader)
        await self._know_who_leads()
        self._restores = True  # also whoever is found when this process takes over
        return await self._reader.restore(pace)

    def stats(self) -> PollingStats:
        return PollingStats.of(
            self._totals,
            title=self.title,
            active=self._roster.active,
            telling=len(self._teller.telling),
            untold=len(self._teller.untold),
        )

    # For the kinds

    async def _cycle(self) -> float:
        """One look at the source; returns the seconds until the next one. Never overlaps."""
        raise NotImplementedError

    async def _begin(self) -> None:
        """This process has become the one that polls. Whoever waits is admitted after this."""

    async def _end(self) -> None:
        """The poller stops: end what runs beside the cycle."""

    def _admitted(self, subscriptions: Sequence[Subscription]) -> None:
        """They are waited for from now on; some may have been before, with other data."""

    def _then(self, news: News) -> AfterNews:
        """What becomes of one who was told."""
        return "wait" if news.kind == "reversed" else "forget"

    async def _found(self, news: Sequence[News]) -> None:
        """Tell them: when it returns, that is sure, whatever happens. Raises NotTheSenderError if another
        process polls by now, and then nothing is told here.
        """
        if not self._leadership.is_ours:
            raise NotTheSenderError(f"another process polls for {self.name} now")
        news = [one for one in news if one.key not in self._teller.telling]
        if not news:
            return
        noting = {one.key for one in news}
        self._notings[id(noting)] = noting
        try:
            kept = await self._note(news)
        finally:
            del self._notings[id(noting)]
        current = [one for one in kept if one.subscription.key in noting]
        if len(current) < len(kept):
            self._reader.doubt()
        self._roster.found([one for one in news if one.key in noting])
        self._teller.tell(current)

    async def _drop(self, keys: Collection[str]) -> None:
        """They are watched no more. Who has subscribed anew meanwhile stays."""
        watched = self._roster.watched_as(keys)
        await self._subscriptions.remove(watched)
        gone = [one.subscription.key for one in watched]
        self._reader.forget([key for key in gone if key not in self._roster.unread])

    # Inside

    async def _run(self) -> None:
        if self._stopping is not None and not self._stopping.done():
            await asyncio.wait([self._stopping])
        self._teller.start()
        while True:
            await self._clock.sleep(await self._turn())

    async def _turn(self) -> float:
        try:
            await self._lead()
            await self._reader.read_new()
            pause = await self._cycle()
        except NotTheSenderError:
            return 0.0
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._troubles.note(RuntimeError("what it waited for was cancelled"), doing="poll")
        except Exception as error:  # noqa: BLE001  (whatever fails is tried again)
            return self._troubles.note(error, doing="poll")
        self._troubles.over("poll")
        return pause

    async def _lead(self) -> None:
        await self._leadership.hold()
        if self._term == self._leadership.term:
            return
        await self._begin()
        await self._reader.read_all()
        self._term = self._leadership.term
        self._knows_who_leads.set()
        if self._restores and self._roster.pending:
            await _end([self._restoring] if self._restoring is not None else [])
            self._restoring = self._aside(self._restore_by_itself())

    async def _restore_by_itself(self) -> None:
        restored = await self._reader.restore(self._pace)
        log.info("%s: %d wait again, after %.1f s", self.name, restored.restored, restored.seconds)

    async def _note(self, news: Sequence[News]) -> list[StoredSubscription]:
        try:
            return await self._subscriptions.ready(news)
        except BadInputError as error:  # one value cannot be kept: the others are told all the same
            if len(news) == 1:
                log.error("%s cannot tell %r: %s", self.name, news[0].key, describe_error(error))  # noqa: TRY400
                return []
            return [kept for one in news for kept in await self._note([one])]
        except NotTheSenderError:
            self._leadership.lose()
            raise
        except StoreError:
            self._reader.doubt()  # it may have been noted all the same
            raise

    def _outdate(self, key: str) -> None:
        """What is being noted of him may be of one who waits no more: the store knows."""
        for noting in self._notings.values():
            noting.discard(key)

    @property
    def _has_read(self) -> bool:
        return self._term > 0 and self._term == self._leadership.term

    def _give(self, key: str, given: SubscriberCallback | None) -> None:
        if given is None:
            self._teller.given.pop(key, None)
        elif self._leadership.waits:  # it would be kept for ever: nobody here hears when he was told
            text = "another process polls for %s: a callback given here is not called there; give it notify="
            log.warning(text, self.name)
        else:
            self._teller.given[key] = given

    def _on_standby(self) -> None:
        self._roster.clear()  # whoever polls has read them
        self._teller.yield_to_another()
        self._knows_who_leads.set()

    async def _know_who_leads(self) -> None:
        if not self.is_running:
            raise ClosedError(f"{self.name} does not run: await its start() first")
        await self._knows_who_leads.wait()

    def _aside(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task = asyncio.create_task(work, name=f"tidegate: {self.name}, aside")
        self._asides.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._asides.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s", self.name, describe_error(error))


def _check_callback(callback: object, what: str) -> None:
    if callback is not None and not callable(callback):
        raise BadInputError(f"{what} is {callback!r}: give a function that takes a Subscription and News")


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
