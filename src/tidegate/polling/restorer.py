"""Restores subscriptions after a restart in groups, so that the API is not asked about all at once."""

import inspect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.failure import describe_error
from tidegate.polling.fetch import is_count
from tidegate.polling.subscriptions import StoredSubscription, Subscription, Subscriptions

log = logging.getLogger("tidegate.polling")

RESTORE_GROUP: Final = 10
RESTORE_EVERY: Final = 1.0  # seconds
SUBSCRIPTIONS_PER_PAGE: Final = 1_000
ADDED_AT_ONCE: Final = 500  # that are added in a step

T = TypeVar("T")
SubscriptionSource = AsyncIterable[Subscription] | Iterable[Subscription]


class RestoreStep(msgspec.Struct, frozen=True):
    """How far it has come: begin, then restored for each, pause after each group but the last, end."""

    what: Literal["begin", "restored", "pause", "end"]
    done: int
    total: int
    subscription: Subscription | None = None


OnProgress = Callable[[RestoreStep], Awaitable[None] | None]


class RestoreResult(msgspec.Struct, frozen=True):
    """`found` there, `already` waiting (or twice in the source), and `restored`: the others."""

    found: int
    restored: int
    already: int
    seconds: float
    groups: int


class StaggeredRestore:
    """At most `group` in any `every` seconds."""

    def __init__(self, clock: Clock, group: int, every: float, on_progress: OnProgress | None) -> None:
        if not is_count(group):
            raise BadInputError(f"a group of {group!r} restores nobody: give a number of users, such as 10")
        if not math.isfinite(every) or every < 0:
            raise BadInputError(f"{every!r} seconds between groups cannot be: give 0 or more, such as 1.0")
        if on_progress is not None and not callable(on_progress):
            raise BadInputError(f"on_progress is {on_progress!r}: give a function that takes a Step")
        self._clock = clock
        self._group = group
        self._every = every
        self._on_progress = on_progress

    def like(
        self, group: int | None, every: float | None, on_progress: OnProgress | None
    ) -> "StaggeredRestore":
        """The same, but for what is given."""
        return StaggeredRestore(
            self._clock,
            self._group if group is None else group,
            self._every if every is None else every,
            on_progress or self._on_progress,
        )

    async def restore(
        self,
        found: Sequence[T],
        admit: Callable[[Sequence[T]], Awaitable[None]],
        subscription_of: Callable[[T], Subscription],
    ) -> int:
        """All, in their order; returns the number of groups."""
        total = len(found)
        await self._say(RestoreStep("begin", 0, total))
        for begin in range(0, total, self._group):
            group = found[begin : begin + self._group]
            await admit(group)
            for done, one in enumerate(group, begin + 1):
                await self._say(RestoreStep("restored", done, total, subscription_of(one)))
            if begin + len(group) < total:
                await self._say(RestoreStep("pause", begin + len(group), total))
                await self._clock.sleep(self._every)
        await self._say(RestoreStep("end", total, total))
        return math.ceil(total / self._group)

    async def _say(self, step: RestoreStep) -> None:
        if self._on_progress is None:
            return
        try:
            said = self._on_progress(step)
            if inspect.isawaitable(said):
                await said
        except Exception as error:  # noqa: BLE001  (who restores does not wait for who watches)
            log.error("progress cannot be shown: %s", describe_error(error))  # noqa: TRY400
            self._on_progress = None


class Admission(Protocol):
    """Whoever is added to the store meanwhile waits for his turn."""

    def reserve(self, keys: Sequence[str]) -> Collection[str]:
        """Those who are not to be admitted before they are released."""
        ...

    def release(self, keys: Collection[str]) -> None: ...


async def restore_from(
    source: SubscriptionSource,
    subscriptions: Subscriptions,
    clock: Clock,
    pace: StaggeredRestore,
    admission: Admission,
) -> RestoreResult:
    """Add whoever is in the source and not in the store, at once, and admit them by and by. If the source
    fails, those read before are restored, then its error is raised: call it again for the rest.
    """
    begun, found, failure = clock.monotonic(), 0, None
    missing: dict[str, Subscription] = {}

    async def admit(group: Sequence[Subscription]) -> None:
        admission.release([one.key for one in group])

    try:
        async with aclosing(_pages(source)) as pages:
            async for page, failure in pages:  # noqa: B007  (the last one is)
                found += len(page)
                missing |= await _add_missing(page, subscriptions, clock, admission)
        groups = await pace.restore(list(missing.values()), admit, lambda one: one)
    finally:
        admission.release(missing.keys())
    if failure is not None:
        text = f"{len(missing)} of {found} read before are restored: call restore() again for the rest"
        log.error("the source of who waits has failed: %s; %s", describe_error(failure), text)
        failure.add_note(text)
        raise failure
    return RestoreResult(found, len(missing), found - len(missing), clock.monotonic() - begun, groups)


async def _add_missing(
    page: Sequence[Subscription], subscriptions: Subscriptions, clock: Clock, admission: Admission
) -> dict[str, Subscription]:
    """Those who were not there, by their keys. Others stay as they are: what is in the store is newer."""
    reserved = set(admission.reserve([one.key for one in page]))
    added: dict[str, Subscription] = {}
    try:
        fresh = await subscriptions.add([_dated(one, clock.now()) for one in page], replace=False)
        added = {one.key: one for one, is_new in zip(page, fresh, strict=True) if is_new}
    finally:
        admission.release(reserved - added.keys())
    return added


async def read_subscriptions(subscriptions: Subscriptions, after: int = 0) -> list[StoredSubscription]:
    """All with a greater number."""
    found: list[StoredSubscription] = []
    while True:
        page = await subscriptions.after(after, SUBSCRIPTIONS_PER_PAGE)
        found += page
        if len(page) < SUBSCRIPTIONS_PER_PAGE:
            return found
        after = page[-1].number


async def _pages(source: SubscriptionSource) -> AsyncGenerator[tuple[list[Subscription], Exception | None]]:
    """As they are read, so that they are added before much changes; the last page says why it is the last."""
    page: list[Subscription] = []
    failure: Exception | None = None
    try:
        async for one in _each(source):
            page.append(_checked(one))
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


def _checked(one: object) -> Subscription:
    if not isinstance(one, Subscription):
        raise BadInputError(f"a source of who waits yields Subscription(key, data), not {type(one).__name__}")
    return one


def _dated(one: Subscription, now: float) -> Subscription:
    return one if one.since else msgspec.structs.replace(one, since=now)


def show(
    state: str | None = None,
    *,
    user: str = "user_id",
    username: str = "username",
    write: Callable[[str], Any] = print,
) -> OnProgress:
    """A progress for people: `user` and `username` are names in the data of a subscription."""

    def say(step: RestoreStep) -> None:
        match step.what:
            case "begin":
                where = f" in state '{state}'" if state else ""
                write(f"🔄 Restoring {step.total} users{where}:")
            case "restored" if step.subscription is not None:
                write(f"   ✓ {_name(step.subscription, user, username)}")
            case "pause":
                write(f"   ⏱️  Staggering polling start ({step.done}/{step.total} users restored)...\n")
            case "end":
                write(f"\n✅ Started polling for {step.total} users")

    return say


def _name(subscription: Subscription, user: str, username: str) -> str:
    who, name = subscription.data.get(user), subscription.data.get(username)
    if who is None:
        return f"Record {subscription.key}"
    called = f" (@{str(name).removeprefix('@')})" if name else ""
    return f"User {who}{called} - record {subscription.key}"
