"""Calls the subscribers' callbacks: each news once, several callbacks at a time, again after a failure.

News is in the store before a callback is called, and leaves it afterwards. A process that dies in between
calls the callback again with the same effect key, so messages that it had put are not put twice.
"""

import asyncio
import hashlib
import inspect
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError, NotTheSenderError, StoreError
from tidegate.failure import FailureLog, describe_error
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.polling.stats import PollingTotals
from tidegate.polling.subscriptions import AfterNews, News, Notify, StoredSubscription, Subscriptions
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.polling")

CALLBACKS_AT_ONCE: Final = 16
CALLBACK_TIMEOUT: Final = 60.0  # seconds
CALLBACK_RETRIES: Final = (5.0, 15.0, 45.0, 135.0, 405.0)  # seconds after each failure; then it is given up
CANCEL_GRACE: Final = 5.0  # seconds that a cancelled callback has to end
SETTLE: Final = "settle delivered news"


class SubscriberCallback(msgspec.Struct, frozen=True, eq=False):
    """A callback given with one subscription, compared by identity: given again, it is another one."""

    callback: Notify


class _Notification(msgspec.Struct, eq=False):
    stored: StoredSubscription
    news: News
    own: SubscriberCallback | None
    failures: int = 0
    is_done: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        return self.news.key


class Notifier:
    """Delivers the news of one poller.

    `after_news` decides what becomes of a subscription whose news was delivered; `on_settled` is called when
    that is stored.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        subscriptions: Subscriptions,
        *,
        notify: Notify | None,
        after_news: Callable[[News], AfterNews],
        on_settled: Callable[[StoredSubscription, AfterNews], None],
        is_leader: Callable[[], bool],
        totals: PollingTotals,
        failures: FailureLog,
    ) -> None:
        self.notify = notify
        self.waiters = NewsWaiters()
        self.callbacks: dict[str, SubscriberCallback] = {}  # by key; known to this process alone
        self._name = name
        self._clock = clock
        self._subscriptions = subscriptions
        self._after_news = after_news
        self._on_settled = on_settled
        self._is_leader = is_leader
        self._totals = totals
        self._failures = failures
        self._pending: dict[str, _Notification] = {}
        self._undelivered: dict[str, StoredSubscription] = {}
        self._queue: deque[_Notification] = deque()
        self._retries: deque[_Notification] = deque()  # served after the queue
        self._tasks = BackgroundTasks()
        self._calls: set[asyncio.Task[None]] = set()
        self._in_time: set[asyncio.Task[None]] = set()  # the calls that have not exceeded their timeout
        self._delivered: list[_Notification] = []
        self._settle_tasks = BackgroundTasks()
        self._settling: asyncio.Task[None] | None = None
        self._has_warned = False
        self._is_stopped = False

    @property
    def pending(self) -> Collection[str]:
        """Keys whose callback runs, or will."""
        return self._pending.keys()

    @property
    def undelivered(self) -> Collection[str]:
        """Keys whose news stays in the store: there is no callback, or it failed too often."""
        return self._undelivered.keys()

    @property
    def is_caller(self) -> bool:
        """True inside a callback."""
        return asyncio.current_task() in self._calls

    def deliver(self, stored: Sequence[StoredSubscription]) -> None:
        """Start callbacks as far as there is room. News that is being delivered is not delivered twice."""
        for one in stored:
            key, news = one.subscription.key, one.news
            begun = self._pending.get(key)
            if news is None or (begun is not None and begun.stored.number == one.number):
                continue
            self.drop([key])
            self._pending[key] = notification = _Notification(one, news, self.callbacks.get(key))
            self._queue.append(notification)
        self._fill()

    def deliver_again(self, key: str) -> None:
        """Deliver news that was undelivered, now that somebody waits for it."""
        if key in self._undelivered:
            self.deliver([self._undelivered[key]])

    def drop(self, keys: Collection[str]) -> None:
        """Do not deliver their news any more. A callback that runs goes on."""
        for key in keys:
            self._undelivered.pop(key, None)
            notification = self._pending.pop(key, None)
            if notification is not None and notification.timer is not None:
                notification.timer.cancel()

    def number_of(self, key: str) -> int:
        """Return the number of the subscription whose news is pending or undelivered; 0 if there is none."""
        notification = self._pending.get(key)
        stored = self._undelivered.get(key) if notification is None else notification.stored
        return 0 if stored is None else stored.number

    def drop_until(self, key: str, number: int) -> None:
        """Drop news of this and earlier numbers: the key was subscribed again since."""
        if self.number_of(key) <= number:
            self.drop([key])

    def forget(self, keys: Collection[str]) -> None:
        """They are gone from the store: calls of `wait` for them fail."""
        self.drop(keys)
        for key in keys:
            self.callbacks.pop(key, None)
        self.waiters.fail(
            keys, "it was unsubscribed, or another process delivered its news, while this waited"
        )

    def keep_only(self, numbers: Collection[int]) -> None:
        """Drop all news of subscriptions that are not in the store under one of these numbers."""
        known = {**self._undelivered, **{key: one.stored for key, one in self._pending.items()}}
        self.drop([key for key, stored in known.items() if stored.number not in numbers])

    def stand_by(self) -> None:
        """Another process is the leader and delivers. A callback that runs goes on."""
        self.drop([*self._pending, *self._undelivered])
        self.waiters.fail(self.waiters.keys, f"another process polls for {self._name} by now: wait there")

    def start(self) -> None:
        self._is_stopped = False

    async def stop(self, grace: float) -> None:
        """Give callbacks that run `grace` seconds to end; the rest is delivered after a start."""
        self._is_stopped = True
        self._queue.clear()
        self._retries.clear()
        calls = set(self._calls)
        if calls:
            await asyncio.wait(calls, timeout=grace)
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CANCEL_GRACE)
        await self._settle_tasks.stop()
        # If this fails, the callbacks are called again with the same effect keys.
        with suppress(StoreError, NotTheSenderError, ClosedError):
            await self._settle()
        self.drop([*self._pending, *self._undelivered])
        self.waiters.fail(self.waiters.keys, f"{self._name} was stopped while this waited")

    def _fill(self) -> None:
        while (queue := self._queue or self._retries) and len(self._in_time) < CALLBACKS_AT_ONCE:
            notification = queue.popleft()
            if self._is_current(notification):
                self._begin(notification)

    def _begin(self, notification: _Notification) -> None:
        task = self._tasks.start(self._deliver(notification), f"notifies {notification.key}", awaited=True)
        overdue = self._clock.call_later(CALLBACK_TIMEOUT, lambda: self._free_place(task))
        self._calls.add(task)
        self._in_time.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            overdue.cancel()
            self._ended(task, notification)

        task.add_done_callback(ended)

    def _free_place(self, task: asyncio.Task[None]) -> None:
        """The callback is cancelled; if it ignores that, others do not wait for it."""
        self._in_time.discard(task)
        self._fill()

    def _is_current(self, notification: _Notification) -> bool:
        return self._pending.get(notification.key) is notification

    async def _deliver(self, notification: _Notification) -> None:
        if not self._is_current(notification):  # it was unsubscribed a moment ago
            return
        if not self._is_leader():
            self.drop([notification.key])
            return
        was_awaited = self.waiters.resolve(notification.news)
        callback = notification.own.callback if notification.own is not None else self.notify
        if callback is not None:
            await self._call(callback, notification)
        elif not was_awaited:
            self._leave_undelivered(notification)
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "%s: there is news of %r, but no callback here: give the poller notify=, or call wait()",
                    self._name,
                    notification.key,
                )
            return
        notification.is_done = True

    async def _call(self, callback: Notify, notification: _Notification) -> None:
        number, subscription = notification.stored.number, notification.stored.subscription
        # With the key and the time, as numbers start again in a store that was emptied.
        key = hashlib.blake2b(subscription.key.encode(), digest_size=6).hexdigest()
        cause = f"poll:{self._name}:{number}:{subscription.since:.3f}:{notification.news.kind}:{key}"
        limit = self._clock.timeout(CALLBACK_TIMEOUT)
        try:
            with effect_keys_for(cause):
                async with limit:
                    result = callback(subscription, notification.news)
                    if inspect.isawaitable(result):
                        await result
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"it took longer than {CALLBACK_TIMEOUT:g} s and was cancelled") from error
            raise

    def _ended(self, task: asyncio.Task[None], notification: _Notification) -> None:
        self._calls.discard(task)
        self._in_time.discard(task)
        error = asyncio.CancelledError("it was cancelled") if task.cancelled() else task.exception()
        if error is not None:
            self._failed(notification, error)
        elif notification.is_done:
            self._totals.told += 1
            if self._is_current(notification):
                self._delivered.append(notification)
                if self._settling is None or self._settling.done():
                    self._settling = self._settle_tasks.start(
                        self._settle_all(), f"{self._name} settles news"
                    )
        self._fill()

    def _failed(self, notification: _Notification, error: BaseException) -> None:
        self._totals.failed_callbacks += 1
        notification.failures += 1
        if not self._is_current(notification):
            retry = "no longer subscribed"
        elif self._is_stopped:
            retry = "called again after the next start"
        elif notification.failures <= len(CALLBACK_RETRIES):
            delay = CALLBACK_RETRIES[notification.failures - 1]
            notification.timer = self._clock.call_later(delay, lambda: self._retry(notification))
            retry = f"called again in {delay:g} s"
        else:
            self._leave_undelivered(notification)
            retry = "not called again before the next start"
        log.error(
            "%s: the callback for %r failed, %s: %s",
            self._name,
            notification.key,
            retry,
            describe_error(error),
        )

    def _retry(self, notification: _Notification) -> None:
        notification.timer = None
        notification.own = self.callbacks.get(notification.key)
        self._retries.append(notification)
        self._fill()

    def _leave_undelivered(self, notification: _Notification) -> None:
        """Keep the subscription in the store with its news."""
        if self._is_current(notification):
            del self._pending[notification.key]
            self._undelivered[notification.key] = notification.stored

    async def _settle_all(self) -> None:
        while self._delivered:
            try:
                await self._settle()
            except StoreError as error:
                await self._clock.sleep(self._failures.note(error, doing=SETTLE))
            else:
                self._failures.over(SETTLE)

    async def _settle(self) -> None:
        """Settle all news delivered since the last time, in one step for each outcome."""
        outcomes: dict[AfterNews, list[_Notification]] = {}
        for notification in self._delivered:
            if self._is_current(notification):
                outcomes.setdefault(self._after_news(notification.news), []).append(notification)
        count = len(self._delivered)
        for then, notifications in outcomes.items():
            try:
                await self._subscriptions.settle_news([one.stored for one in notifications], then)
            except NotTheSenderError:  # the leader has read this news, and delivers it
                self.drop([one.key for one in notifications if self._is_current(one)])
            for notification in notifications:
                self._settled(notification, then)
        del self._delivered[:count]  # not before: what the store did not take is settled again

    def _settled(self, notification: _Notification, then: AfterNews) -> None:
        if not self._is_current(notification):
            return
        key = notification.key
        del self._pending[key]
        if then == "forget" and self.callbacks.get(key) is notification.own:
            self.callbacks.pop(key, None)
        self._on_settled(notification.stored, then)


class NewsWaiters:
    """Futures of `wait` calls in this process, by key."""

    def __init__(self) -> None:
        self._futures: dict[str, list[asyncio.Future[Any]]] = {}
        self.subscribed: set[str] = set()  # keys that were subscribed only because of a `wait` call

    @property
    def keys(self) -> Collection[str]:
        return list(self._futures)

    def join(self, key: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(key, []).append(future)
        return future

    def leave(self, key: str, future: asyncio.Future[Any]) -> bool:
        """Return True if it was the last one and the key was subscribed only for such calls."""
        left = [other for other in self._futures.get(key, ()) if other is not future]
        if left:
            self._futures[key] = left
            return False
        self._futures.pop(key, None)
        was_subscribed = key in self.subscribed
        self.subscribed.discard(key)
        return was_subscribed

    def resolve(self, news: News) -> bool:
        """Return True if a call waited for it. A reversal resolves nothing."""
        if news.kind == "reversed" or news.key not in self._futures:
            return False
        if news.kind == "gone":
            self.fail([news.key], f"the record of {news.key!r} is gone: there will be no more news of it")
            return True
        for future in self._futures.pop(news.key):
            if not future.done():
                future.set_result(news.value)
        return True

    def fail(self, keys: Collection[str], text: str) -> None:
        for key in keys:
            for future in self._futures.pop(key, ()):
                if not future.done():
                    future.set_exception(ClosedError(text))
