"""Calls the subscribers' callbacks: each news once, several callbacks at a time, again after a failure."""

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
from tidegate.failure import describe_error
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.polling.failure_log import FailureLog
from tidegate.polling.stats import PollingTotals
from tidegate.polling.subscriptions import AfterNews, News, Notify, StoredSubscription, Subscriptions


class NewsWaiters:
    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Future[Any]]] = {}
        self.made: set[str] = set()  # the keys whose subscription is there only because somebody awaits it

    def __contains__(self, key: str) -> bool:
        return key in self._of

    @property
    def keys(self) -> Collection[str]:
        return list(self._of)

    def join(self, key: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._of.setdefault(key, []).append(future)
        return future

    def leave(self, key: str, future: asyncio.Future[Any]) -> bool:
        """Whether that was the last one, and the subscription was made for them."""
        left = [other for other in self._of.get(key, ()) if other is not future]
        if left:
            self._of[key] = left
            return False
        self._of.pop(key, None)
        was_made = key in self.made
        self.made.discard(key)
        return was_made

    def tell(self, news: News) -> bool:
        """Whether anybody awaited it. One who awaits a payment is not told of its reversal."""
        if news.kind == "reversed" or news.key not in self._of:
            return False
        if news.kind == "gone":
            self.fail([news.key], f"the record of {news.key!r} is gone: nothing more will be heard of it")
            return True
        for future in self._of.pop(news.key):
            if not future.done():
                future.set_result(news.value)
        return True

    def fail(self, keys: Collection[str], text: str) -> None:
        for key in keys:
            for future in self._of.pop(key, ()):
                if not future.done():
                    future.set_exception(ClosedError(text))


log = logging.getLogger("tidegate.polling")

CALLBACKS_AT_ONCE: Final = 16  # callbacks
CALLBACK_TIMEOUT: Final = 60.0  # seconds for one
CANCEL_GRACE: Final = 5.0  # seconds that a callback has to end when it was cancelled
CALLBACK_RETRIES: Final = (
    5.0,
    15.0,
    45.0,
    135.0,
    405.0,
)  # seconds after a callback that failed; then it is left


class SubscriberCallback(msgspec.Struct, frozen=True, eq=False):
    """A callback as it was given with one subscription: the same function given again is another."""

    callback: Notify


class _Notification(msgspec.Struct, eq=False):
    kept: StoredSubscription
    news: News
    given: SubscriberCallback | None
    failures: int = 0
    is_done: bool = False
    timer: asyncio.TimerHandle | None = None


class Notifier:
    """Of one poller. `then` says what becomes of one who was told; `on_told` hears when that is written."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        subscriptions: Subscriptions,
        *,
        notify: Notify | None,
        then: Callable[[News], AfterNews],
        on_told: Callable[[StoredSubscription, AfterNews], None],
        leads: Callable[[], bool],
        totals: PollingTotals,
        troubles: FailureLog,
    ) -> None:
        self._name = name
        self._clock = clock
        self._subscriptions = subscriptions
        self._notify = notify
        self._then = then
        self._on_told = on_told
        self._leads = leads
        self._totals = totals
        self._troubles = troubles
        self.waiters = NewsWaiters()
        self.given: dict[str, SubscriberCallback] = {}
        self._telling: dict[str, _Notification] = {}
        self._untold: dict[str, StoredSubscription] = {}
        self._queue: deque[_Notification] = deque()
        self._again: deque[_Notification] = deque()  # those that have failed, behind all others
        self._calls: set[asyncio.Task[None]] = set()
        self._places: set[asyncio.Task[None]] = set()  # of those calls that are not past their deadline
        self._done: list[_Notification] = []
        self._settling: asyncio.Task[None] | None = None
        self._said_that_nobody_is_here = False
        self._over = False

    @property
    def telling(self) -> Collection[str]:
        return self._telling.keys()

    @property
    def untold(self) -> Collection[str]:
        return self._untold.keys()

    @property
    def is_caller(self) -> bool:
        """Whether who asks is a callback."""
        return asyncio.current_task() in self._calls

    def tell(self, kept: Sequence[StoredSubscription]) -> None:
        """Begin, as room allows. Whom it is being told is not told twice."""
        for one in kept:
            key, news = one.subscription.key, one.news
            begun = self._telling.get(key)
            if news is None or (begun is not None and begun.kept.number == one.number):
                continue
            self.drop([key])
            self._telling[key] = telling = _Notification(one, news, self.given.get(key))
            self._queue.append(telling)
        self._fill()

    def tell_again(self, key: str) -> None:
        """Somebody is there to be told now, if nobody was before."""
        if key in self._untold:
            self.tell([self._untold[key]])

    def drop(self, keys: Collection[str]) -> None:
        """They wait anew, or no more, or another process tells them. A callback that runs goes on."""
        for key in keys:
            self._untold.pop(key, None)
            telling = self._telling.pop(key, None)
            if telling is not None and telling.timer is not None:
                telling.timer.cancel()

    def number_of(self, key: str) -> int:
        """Under which he is being told, or is untold; 0: neither."""
        telling = self._telling.get(key)
        kept = self._untold.get(key) if telling is None else telling.kept
        return 0 if kept is None else kept.number

    def drop_until(self, key: str, number: int) -> None:
        """He subscribed anew after this number: what was to be told before is outdated."""
        if self.number_of(key) <= number:
            self.drop([key])

    def forget(self, keys: Collection[str]) -> None:
        """They are gone from the store; who awaits them need not wait on."""
        self.drop(keys)
        for key in keys:
            self.given.pop(key, None)
        self.waiters.fail(keys, "it was unsubscribed, or told by another process, while this waited")

    def keep(self, numbers: Collection[int]) -> None:
        """Forget all that are not in the store under one of these numbers."""
        known = {**self._untold, **{key: telling.kept for key, telling in self._telling.items()}}
        self.drop([key for key, kept in known.items() if kept.number not in numbers])

    def yield_to_another(self) -> None:
        """Another process tells them. A callback that runs goes on."""
        self.drop([*self._telling, *self._untold])
        self.waiters.fail(self.waiters.keys, f"another process polls for {self._name} by now: wait there")

    def start(self) -> None:
        self._over = False

    async def stop(self, grace: float) -> None:
        """Callbacks that run have `grace` seconds to end; whom they did not reach is told after a start."""
        self._over = True
        self._queue.clear()
        self._again.clear()
        calls = set(self._calls)
        if calls:
            await asyncio.wait(calls, timeout=grace)
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls, timeout=CANCEL_GRACE)  # who does not end is left alone
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
        # If that fails, who was told is told again, for the same cause.
        with suppress(StoreError, NotTheSenderError, ClosedError):
            await self._write()
        self.drop([*self._telling, *self._untold])
        self.waiters.fail(self.waiters.keys, f"{self._name} was stopped while this waited")

    def _fill(self) -> None:
        while (queue := self._queue or self._again) and len(self._places) < CALLBACKS_AT_ONCE:
            telling = queue.popleft()
            if self._is_current(telling):
                self._begin(telling)

    def _begin(self, telling: _Notification) -> None:
        task = asyncio.create_task(self._tell(telling), name=f"tidegate: tells {telling.news.key}")
        overdue = self._clock.call_later(CALLBACK_TIMEOUT, lambda: self._give_place(task))
        self._calls.add(task)
        self._places.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            overdue.cancel()
            self._ended(task, telling)

        task.add_done_callback(ended)

    def _give_place(self, task: asyncio.Task[None]) -> None:
        """It is cancelled, and if it does not heed that, the others do not wait for it."""
        self._places.discard(task)
        self._fill()

    def _is_current(self, telling: _Notification) -> bool:
        return self._telling.get(telling.news.key) is telling

    async def _tell(self, telling: _Notification) -> None:
        if not self._is_current(telling):  # it was unsubscribed a moment ago
            return
        if not self._leads():  # another process does it
            self.drop([telling.news.key])
            return
        awaited = self.waiters.tell(telling.news)
        callback = telling.given.callback if telling.given is not None else self._notify
        if callback is not None:
            await self._call(callback, telling)
        elif not awaited:
            self._leave(telling)
            return
        telling.is_done = True

    async def _call(self, callback: Notify, telling: _Notification) -> None:
        kept, news = telling.kept, telling.news
        who = kept.subscription
        # The key and the time make it another cause where numbers begin anew: in a store that was emptied.
        key = hashlib.blake2b(who.key.encode(), digest_size=6).hexdigest()
        cause = f"poll:{self._name}:{kept.number}:{who.since:.3f}:{news.kind}:{key}"
        limit = self._clock.timeout(CALLBACK_TIMEOUT)
        try:
            with effect_keys_for(cause):
                async with limit:
                    result = callback(who, news)
                    if inspect.isawaitable(result):
                        await result
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"it took longer than {CALLBACK_TIMEOUT:g} s and was cancelled") from error
            raise

    def _ended(self, task: asyncio.Task[None], telling: _Notification) -> None:
        self._calls.discard(task)
        self._places.discard(task)
        cut = asyncio.CancelledError("it was cancelled")
        error = cut if task.cancelled() else task.exception()
        if error is not None:
            self._failed(telling, error)
        elif telling.is_done:
            self._totals.told += 1
            if self._is_current(telling):
                self._done.append(telling)
                self._settle()
        self._fill()

    def _failed(self, telling: _Notification, error: BaseException) -> None:
        self._totals.failed_callbacks += 1
        telling.failures += 1
        if not self._is_current(telling):
            retry = "which nobody waits for any more"
        elif self._over:
            retry = "told after the next start"
        elif telling.failures <= len(CALLBACK_RETRIES):
            after = CALLBACK_RETRIES[telling.failures - 1]
            telling.timer = self._clock.call_later(after, lambda: self._retry(telling))
            retry = f"tried again in {after:g} s"
        else:
            self._leave(telling, said=True)
            retry = "not tried again before the next start"
        log.error(
            "%s: the callback for %r failed, %s: %s",
            self._name,
            telling.news.key,
            retry,
            describe_error(error),
        )

    def _retry(self, telling: _Notification) -> None:
        telling.timer = None
        telling.given = self.given.get(telling.news.key)
        self._again.append(telling)
        self._fill()

    def _leave(self, telling: _Notification, *, said: bool = False) -> None:
        """It stays in the store with its news."""
        if not self._is_current(telling):
            return
        key = telling.news.key
        del self._telling[key]
        self._untold[key] = telling.kept
        if not said and not self._said_that_nobody_is_here:
            self._said_that_nobody_is_here = True
            log.warning(
                "%s: there is news of %r and nobody here to be told: give the poller notify=, or wait()",
                self._name,
                key,
            )

    def _settle(self) -> None:
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle_all(), name=f"tidegate: {self._name} settles")

    async def _settle_all(self) -> None:
        while self._done:
            try:
                await self._write()
            except StoreError as error:
                await self._clock.sleep(self._troubles.note(error, doing="write down who was told"))
            else:
                self._troubles.over("write down who was told")

    async def _write(self) -> None:
        """All that were told since the last time, in one step for each fate."""
        fates: dict[AfterNews, list[_Notification]] = {}
        for telling in self._done:
            if self._is_current(telling):
                fates.setdefault(self._then(telling.news), []).append(telling)
        count = len(self._done)
        for then, told in fates.items():
            try:
                await self._subscriptions.told([telling.kept for telling in told], then)
            except NotTheSenderError:  # who polls now has read that they are to be told, and tells them
                self.drop([telling.news.key for telling in told if self._is_current(telling)])
            for telling in told:
                self._forget(telling, then)
        del self._done[:count]  # not before: what the store did not take is told to it again

    def _forget(self, telling: _Notification, then: AfterNews) -> None:
        if not self._is_current(telling):
            return
        key = telling.news.key
        del self._telling[key]
        if then == "forget" and self.given.get(key) is telling.given:
            self.given.pop(key, None)
        self._on_told(telling.kept, then)
