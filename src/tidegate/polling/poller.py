"""The base of all pollers: become the leader, read the subscriptions, look at the source, deliver news."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypedDict

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError, StoreError
from tidegate.events import CyclePolled, EventStream
from tidegate.failure import FailureLog, describe_error
from tidegate.leader_lease import LeaderLease
from tidegate.polling.notifier import Notifier, SubscriberCallback
from tidegate.polling.restorer import (
    RESTORE_EVERY,
    OnProgress,
    RestoreResult,
    StaggeredRestore,
    SubscriptionSource,
)
from tidegate.polling.stats import PollingStats, PollingTotals
from tidegate.polling.subscriptions import (
    AfterNews,
    MemorySubscriptions,
    News,
    Notify,
    StoredSubscription,
    Subscription,
    Subscriptions,
    check_key,
    check_text,
)
from tidegate.polling.tracker import SubscriptionReader, TrackedSubscriptions
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.polling")

STOP_GRACE: Final = 10.0  # seconds that callbacks have to end when the poller stops
REACH_STORE: Final = "reach its store"


class PollerOptions(TypedDict, total=False):
    """The options of every kind of poller."""

    name: str | None
    notify: Notify | None
    subscriptions: Subscriptions | None
    clock: Clock | None
    restore: bool
    restore_group: int | None
    restore_every: float
    on_progress: OnProgress | None


class Poller:
    """`async with` it, or `start` and `stop`. Ends only when it is stopped: whatever fails is tried again.

    Subscriptions are in a store that several processes may share: any process subscribes, the leader polls.
    News is stored first and delivered then, so that it is delivered whatever happens in between.

    `name`, by default that of the subscriptions, is part of the dedup keys of messages that callbacks put: do
    not change it. `notify` is called for keys without a callback of their own; only `notify` survives a
    restart. Without `subscriptions` they are kept in memory. With `restore` false, subscriptions that are
    found in the store are not polled for until `restore()` is called.
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
        restore_group: int | None = None,
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
        self._restore = StaggeredRestore(self._clock, restore_group, restore_every, on_progress)
        self._totals = PollingTotals()
        self.events = EventStream()  # that of the gate, once it is added to one
        self._failures = FailureLog(name, log)
        self._tracked = TrackedSubscriptions()
        self._leader_lease = LeaderLease(
            self._subscriptions.leases,
            self._clock,
            self._subscriptions.name,
            log=log,
            on_wait=self._stand_by,
            on_store_error=lambda error: self._failures.note(error, doing=REACH_STORE),
            on_store_back=lambda: self._failures.over(REACH_STORE),
        )
        self._notifier = Notifier(
            name,
            self._clock,
            self._subscriptions,
            notify=notify,
            after_news=self._after_news,
            on_settled=self._tracked.note_settled,
            is_leader=lambda: self._leader_lease.is_ours,
            totals=self._totals,
            failures=self._failures,
        )
        self._reader = SubscriptionReader(
            self._subscriptions, self._clock, self._tracked, self._notifier, self._on_admitted
        )
        self._read_term = 0  # the term in which the store was read
        self._leader_known = asyncio.Event()
        self._tasks = BackgroundTasks()  # of the present run
        self._running: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._stop_tasks = BackgroundTasks()
        self._stopping: asyncio.Task[None] | None = None
        self._being_noted: dict[int, set[str]] = {}  # keys whose news is being stored, for each call

    # Subscribers

    @property
    def subscriptions(self) -> Subscriptions:
        """The store of its subscriptions."""
        return self._subscriptions

    def on_news(self, notify: Notify) -> None:
        """Set the callback for keys without one of their own. Raises BadInputError if there is one."""
        _check_callback(notify, "notify")
        if self._notifier.notify is not None:
            raise BadInputError(f"{self.name} has a notify of its own already: leave it out")
        self._notifier.notify = notify

    async def subscribe(
        self, key: str | int, data: dict[str, Any] | None = None, *, callback: Notify | None = None
    ) -> None:
        """Durable when it returns. A key that is subscribed already waits again, with the new data.

        A callback is known to this process alone, and is called only while this process is the leader.
        """
        key = check_key(key)
        self._notifier.waiters.subscribed.discard(key)
        await self._subscribe(key, data, callback)

    async def _subscribe(
        self, key: str, data: dict[str, Any] | None = None, callback: Notify | None = None
    ) -> None:
        _check_callback(callback, "callback")
        before, outdated = self._notifier.callbacks.pop(key, None), self._notifier.number_of(key)
        self._set_callback(key, callback and SubscriberCallback(callback))
        if not self._leader_lease.waits:
            self._tracked.expect(key)
        try:
            await self._subscriptions.add([Subscription(key, data or {}, self._clock.now())])
        except BaseException:
            self._set_callback(key, before)
            self._tracked.unread.discard(key)
            raise
        self._outdate(key)
        self._notifier.drop_until(key, outdated)

    async def unsubscribe(self, key: str | int) -> bool:
        """Return True if it was subscribed. A callback that runs is not stopped; no other is called."""
        key = check_key(key)
        was_there = await self._subscriptions.remove([key]) > 0
        self._outdate(key)
        self._reader.forget([key])
        return was_there

    async def wait(self, key: str | int) -> Any:  # noqa: ANN401  (whatever is fetched)
        """Wait for the value that callbacks get; subscribes the key if needed. Only in the leader process.

        Raises ClosedError if the key is unsubscribed, its record is gone, the poller stops, or another
        process becomes the leader. If the last such call is cancelled, a subscription made for them is
        removed.
        """
        key = check_key(key)
        await self._wait_for_leader()
        if self._leader_lease.waits:
            raise NotTheSenderError(f"another process polls for {self.name}: wait there, or give it notify=")
        notifier = self._notifier
        is_there = key in self._tracked or key in notifier.pending or key in notifier.undelivered
        future = notifier.waiters.join(key)
        try:
            if not is_there:
                notifier.waiters.subscribed.add(key)
                await self._subscribe(key)
            notifier.deliver_again(key)
            return await future
        finally:
            was_subscribed = notifier.waiters.leave(key, future)
            is_given_up = future.cancelled() or not future.done()
            if was_subscribed and is_given_up and key not in notifier.callbacks:
                self._tasks.start(self.unsubscribe(key), f"{self.name} unsubscribes {key}")

    def subscription(self, key: str | int) -> Subscription | None:
        """Return a subscription that this process has read from the store, polled for or not."""
        return self._tracked.find(check_key(key))

    @property
    def waiting(self) -> Mapping[str, Subscription]:
        """The subscriptions that are polled for."""
        return self._tracked.waiting

    @property
    def watched(self) -> Mapping[str, Subscription]:
        """The subscriptions that were notified of "met" and are watched for a reversal."""
        return self._tracked.watched

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
        """True if this process polls."""
        has_read = self._read_term > 0 and self._read_term == self._leader_lease.term
        return self._leader_lease.is_ours and has_read

    async def start(self) -> None:
        """Start polling. Does not fail if the store or the API cannot be reached."""
        self.begin()

    def begin(self) -> None:
        """Start as `start` does, from code that cannot await."""
        if not self.is_running:
            self._running = self._tasks.start(self._run(), self.name)

    async def stop(self) -> None:
        """Give callbacks that run a while to end; then another process may poll.

        A callback may call it too, and then does not wait: the poller stops when that callback has ended.
        """
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            tasks, self._tasks = self._tasks, BackgroundTasks()
            self._stopping = self._stop_tasks.start(self._stop(tasks), f"{self.name} stops")
        if self._stopping is not None and not self._notifier.is_caller:
            await asyncio.shield(self._stopping)

    async def _stop(self, tasks: BackgroundTasks) -> None:
        await tasks.stop()
        await self._end_cycle()
        await self._notifier.stop(STOP_GRACE)
        await self._leader_lease.give_up()
        self._tracked.clear()
        self._read_term = 0
        self._leader_known.clear()

    async def restore(
        self,
        source: SubscriptionSource | None = None,
        *,
        group: int | None = None,
        every: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> RestoreResult:
        """Poll again for earlier subscriptions: `group` of them every `every` seconds, or as at the start.

        Without a source: those in the store that were not restored yet; the poller must run, and if another
        process is the leader, there are none. With a source: those that are in it and not in the store.
        """
        restore = self._restore.replace(group, every, on_progress)
        if source is not None:
            return await self._reader.restore_from(source, restore)
        await self._wait_for_leader()
        self._restores = True  # also those that are found when this process takes over
        return await self._reader.restore(restore)

    def stats(self) -> PollingStats:
        return PollingStats.of(
            self._totals,
            title=self.title,
            active=self._tracked.active,
            telling=len(self._notifier.pending),
            untold=len(self._notifier.undelivered),
            unreadable=len(self._subscriptions.unreadable),
        )

    # For subclasses

    async def _cycle(self) -> float:
        """Look at the source once; return the seconds until the next cycle. Cycles never overlap."""
        raise NotImplementedError

    async def _begin_term(self) -> None:
        """Called when this process has become the leader, before subscriptions are admitted."""

    async def _end_cycle(self) -> None:
        """Called when the poller stops: end what runs beside the cycle."""

    def _on_admitted(self, subscriptions: Sequence[Subscription]) -> None:
        """Called with subscriptions to poll for; some may have been polled for before, with other data."""

    def _after_news(self, news: News) -> AfterNews:
        """Decide what becomes of a subscription whose news was delivered."""
        return "wait" if news.kind == "reversed" else "forget"

    async def _report(self, news: Sequence[News]) -> None:
        """Deliver news: when it returns, that is certain, whatever happens.

        Raises NotTheSenderError if another process is the leader by now; then nothing is delivered here.
        """
        if not self._leader_lease.is_ours:
            raise NotTheSenderError(f"another process polls for {self.name} now")
        news = [one for one in news if one.key not in self._notifier.pending]
        if not news:
            return
        keys = {one.key for one in news}
        self._being_noted[id(keys)] = keys
        try:
            stored = await self._note(news)
        finally:
            del self._being_noted[id(keys)]
        current = [one for one in stored if one.subscription.key in keys]
        if len(current) < len(stored):
            self._reader.expect_missed_news()
        self._tracked.note_news([one for one in news if one.key in keys])
        self._notifier.deliver(current)

    async def _stop_watching(self, keys: Collection[str]) -> None:
        """Remove watched subscriptions. Keys that were subscribed again meanwhile stay."""
        watched = self._tracked.watched_as_stored(keys)
        await self._subscriptions.remove(watched)
        gone = [one.subscription.key for one in watched]
        self._reader.forget([key for key in gone if key not in self._tracked.unread])

    # Inside

    async def _run(self) -> None:
        if self._stopping is not None and not self._stopping.done():
            await asyncio.wait([self._stopping])
        self._notifier.start()
        while True:
            await self._clock.sleep(await self._turn())

    async def _told_cycle(self) -> float:
        began, totals = self._clock.monotonic(), self._totals
        asked, requests = totals.asked, totals.requests
        pause = await self._cycle()
        if totals.requests != requests:
            seconds = self._clock.monotonic() - began
            self.events.publish(
                CyclePolled(self.name, totals.asked - asked, totals.requests - requests, seconds)
            )
        return pause

    async def _turn(self) -> float:
        try:
            await self._lead()
            await self._reader.read_new()
            pause = await self._told_cycle()
        except NotTheSenderError:
            return 0.0
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failures.note(RuntimeError("what it waited for was cancelled"), doing="poll")
        except Exception as error:  # noqa: BLE001  (whatever fails is tried again)
            return self._failures.note(error, doing="poll")
        self._failures.over("poll")
        return pause

    async def _lead(self) -> None:
        """Wait until this process is the leader. At the beginning of a term, read the store."""
        await self._leader_lease.hold()
        if self._read_term == self._leader_lease.term:
            return
        await self._begin_term()
        await self._reader.read_all()
        self._read_term = self._leader_lease.term
        self._leader_known.set()
        if self._restores and self._tracked.unrestored:
            if self._restoring is not None:  # of an earlier term
                self._restoring.cancel()
            self._restoring = self._tasks.start(self._restore_found(), f"{self.name} restores")

    async def _restore_found(self) -> None:
        result = await self._reader.restore(self._restore)
        log.info("%s: %d subscriptions restored in %.1f s", self.name, result.restored, result.seconds)

    async def _note(self, news: Sequence[News]) -> list[StoredSubscription]:
        try:
            return await self._subscriptions.note_news(news)
        except BadInputError as error:  # one value cannot be stored: the others are
            if len(news) == 1:
                log.error("%s cannot store the news of %r: %s", self.name, news[0].key, describe_error(error))  # noqa: TRY400
                return []
            return [stored for one in news for stored in await self._note([one])]
        except NotTheSenderError:
            self._leader_lease.lose()
            raise
        except StoreError:
            self._reader.expect_missed_news()  # it may have been stored all the same
            raise

    def _outdate(self, key: str) -> None:
        """The key has changed while its news was being stored: the store knows whether the news counts."""
        for keys in self._being_noted.values():
            keys.discard(key)

    def _set_callback(self, key: str, callback: SubscriberCallback | None) -> None:
        if callback is None:
            self._notifier.callbacks.pop(key, None)
        elif self._leader_lease.waits:  # it would be kept for ever: this process does not hear of the news
            text = "another process polls for %s: a callback given here is not called there; give it notify="
            log.warning(text, self.name)
        else:
            self._notifier.callbacks[key] = callback

    def _stand_by(self) -> None:
        self._tracked.clear()  # the leader has read them
        self._notifier.stand_by()
        self._leader_known.set()

    async def _wait_for_leader(self) -> None:
        if not self.is_running:
            raise ClosedError(f"{self.name} does not run: await its start() first")
        await self._leader_known.wait()


def _check_callback(callback: object, what: str) -> None:
    if callback is not None and not callable(callback):
        raise BadInputError(f"{what} is {callback!r}: give a function that takes a Subscription and News")
