"""Restores subscriptions after a restart in groups, so that the API is not asked about all at once."""

import inspect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.failure import describe_error
from tidegate.polling.fetch import is_count
from tidegate.polling.subscriptions import StoredSubscription, Subscription, Subscriptions

log = logging.getLogger("tidegate.polling")

GROUP_STEPS: Final = ((100, 10), (200, 15))  # up to so many subscriptions: so many in a group
GROUP_BEYOND_STEPS: Final = 20
RESTORE_WITHIN: Final = 15.0  # seconds, of any number: larger groups, if need be
RESTORE_EVERY: Final = 1.0  # seconds
SUBSCRIPTIONS_PER_PAGE: Final = 1_000
ADDED_AT_ONCE: Final = 500

T = TypeVar("T")
SubscriptionSource = AsyncIterable[Subscription] | Iterable[Subscription]


class RestoreStep(msgspec.Struct, frozen=True):
    """Progress: begin, then restored for each, pause after each group but the last, end."""

    what: Literal["begin", "restored", "pause", "end"]
    done: int
    total: int
    subscription: Subscription | None = None


OnProgress = Callable[[RestoreStep], Awaitable[None] | None]


class RestoreResult(msgspec.Struct, frozen=True):
    """`already`: found, but subscribed already or twice in the source. `restored`: the others."""

    found: int
    restored: int
    already: int
    seconds: float
    groups: int


class StaggeredRestore:
    """Restores at most `group` subscriptions in any `every` seconds. None: groups grow with their number."""

    def __init__(self, clock: Clock, group: int | None, every: float, on_progress: OnProgress | None) -> None:
        if group is not None and not is_count(group):
            raise BadInputError(f"a group of {group!r} restores nobody: give a number of users, such as 10")
        if not math.isfinite(every) or every < 0:
            raise BadInputError(f"{every!r} seconds between groups: give 0 or more, such as 1.0")
        if on_progress is not None and not callable(on_progress):
            raise BadInputError(f"on_progress is {on_progress!r}: give a function that takes a RestoreStep")
        self._clock = clock
        self._group = group
        self._every = every
        self._on_progress = on_progress

    def replace(
        self, group: int | None, every: float | None, on_progress: OnProgress | None
    ) -> "StaggeredRestore":
        """Return one that differs in what is given."""
        return StaggeredRestore(
            self._clock,
            self._group if group is None else group,
            self._every if every is None else every,
            on_progress or self._on_progress,
        )

    async def run(
        self,
        found: Sequence[T],
        admit: Callable[[Sequence[T]], Awaitable[None]],
        subscription_of: Callable[[T], Subscription],
    ) -> int:
        """Admit all, in order, and return the number of groups."""
        total = len(found)
        size = self._group or group_for(total, self._every)
        await self._report(RestoreStep("begin", 0, total))
        for begin in range(0, total, size):
            group = found[begin : begin + size]
            await admit(group)
            for done, one in enumerate(group, begin + 1):
                await self._report(RestoreStep("restored", done, total, subscription_of(one)))
            if begin + len(group) < total:
                await self._report(RestoreStep("pause", begin + len(group), total))
                await self._clock.sleep(self._every)
        await self._report(RestoreStep("end", total, total))
        return math.ceil(total / size)

    async def _report(self, step: RestoreStep) -> None:
        if self._on_progress is None:
            return
        try:
            result = self._on_progress(step)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001  (restoring goes on)
            log.error("on_progress failed and is not called again: %s", describe_error(error))  # noqa: TRY400
            self._on_progress = None


def group_for(total: int, every: float) -> int:
    """Return how many are restored at a time: small groups, unless all would take too long."""
    usual = next((size for most, size in GROUP_STEPS if total <= most), GROUP_BEYOND_STEPS)
    return max(usual, math.ceil(total * every / RESTORE_WITHIN))


async def read_subscriptions(subscriptions: Subscriptions, after: int = 0) -> list[StoredSubscription]:
    """Return all with a greater number."""
    found: list[StoredSubscription] = []
    while True:
        page = await subscriptions.after(after, SUBSCRIPTIONS_PER_PAGE)
        found += page
        if len(page) < SUBSCRIPTIONS_PER_PAGE:
            return found
        after = page[-1].number


async def source_pages(
    source: SubscriptionSource,
) -> AsyncGenerator[tuple[list[Subscription], Exception | None]]:
    """Yield pages as they are read, so that they are added before much changes; the last has the error."""
    page: list[Subscription] = []
    failure: Exception | None = None
    try:
        async for one in _each(source):
            if not isinstance(one, Subscription):
                kind = type(one).__name__
                raise BadInputError(f"a restore source yields Subscription(key, data), not {kind}")  # noqa: TRY301
            page.append(one)
            if len(page) >= ADDED_AT_ONCE:
                yield page, None
                page = []
    except Exception as error:  # noqa: BLE001  (raised when those found are restored)
        failure = error
    yield page, failure


async def _each(source: SubscriptionSource) -> AsyncGenerator[Subscription]:
    if isinstance(source, AsyncIterable):
        async for one in source:
            yield one
    else:
        for one in source:
            yield one


def show(
    state: str | None = None,
    *,
    user: str = "user_id",
    username: str = "username",
    write: Callable[[str], Any] = print,
) -> OnProgress:
    """Return an `on_progress` for people. `user` and `username` are names in the data of a subscription."""

    def say(step: RestoreStep) -> None:
        match step.what:
            case "begin":
                where = f" in state '{state}'" if state else ""
                write(f"🔄 Restoring {step.total} users{where}:")
            case "restored" if step.subscription is not None:
                write(f"   ✓ {_title(step.subscription, user, username)}")
            case "pause":
                write(f"   ⏱️  Staggering polling start ({step.done}/{step.total} users restored)...\n")
            case "end":
                write(f"\n✅ Started polling for {step.total} users")

    return say


def _title(subscription: Subscription, user: str, username: str) -> str:
    user_id, name = subscription.data.get(user), subscription.data.get(username)
    if user_id is None:
        return f"Record {subscription.key}"
    mention = f" (@{str(name).removeprefix('@')})" if name else ""
    return f"User {user_id}{mention} - record {subscription.key}"
