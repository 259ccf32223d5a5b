"""A cache of credentials: tokens and sessions, by the digests of their secrets.

A busy API asks the database once in FRESH_FOR seconds for each token, not with every request. While the
database is away, those that were checked lately are accepted for GRACE seconds.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidegate.access import Principal
from tidegate.breaker import Breaker
from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreAwayError, StoreError
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.access")

FRESH_FOR: Final = 10.0  # seconds in which the database is not asked again
GRACE: Final = 300.0  # seconds after its last check in which one is accepted while the database is away
MOST_KNOWN: Final = 1_000
MOST_UNKNOWN: Final = 1_000  # digests that the database does not know: somebody guesses
MOST_LOOKUPS: Final = 100  # under way at once
LOOKUP_TIMEOUT: Final = 3.0  # seconds: then the database counts as away
RETRY_AFTER: Final = 5.0  # seconds after which a database that is away is asked again


class Credential(Protocol):
    """A token or a session, as it is stored."""

    @property
    def principal(self) -> Principal: ...

    def is_usable(self, now: float) -> bool: ...


C = TypeVar("C", bound=Credential)


class _Checked(NamedTuple, Generic[C]):
    credential: C
    at: float  # monotonic


class CredentialCache(Generic[C]):
    """The database's answers about digests, for FRESH_FOR seconds.

    Bounded: the least recently used goes first. Those that are unknown have a place of their own, so that
    guesses push no valid one out. Callers that ask the same at the same time share one look-up.
    """

    def __init__(self, load: Callable[[bytes], Awaitable[C | None]], clock: Clock, breaker: Breaker) -> None:
        self._load = load
        self._clock = clock
        self._breaker = breaker
        self._known: OrderedDict[bytes, _Checked[C]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[C | StoreError | None]] = {}
        self._tasks = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    async def find(self, digest: bytes) -> C | None:
        """Return the credential, usable or not; None if there is none. Raises StoreError if nobody knows."""
        now = self._clock.monotonic()
        checked = self._known.get(digest)
        if checked is not None and now - checked.at < FRESH_FOR:
            self._known.move_to_end(digest)
            return checked.credential
        if now - self._unknown.get(digest, -math.inf) < FRESH_FOR:
            return None
        try:
            return await self._ask(digest)
        except StoreError:
            checked = self._known.get(digest)  # not that of above: it may have been revoked meanwhile
            if checked is None or self._clock.monotonic() - checked.at >= GRACE:
                raise
            return checked.credential

    def drop(self, matches: Callable[[C], bool]) -> None:
        """Forget credentials. Look-ups under way may have seen them as they were: nobody joins those."""
        for digest in [digest for digest, known in self._known.items() if matches(known.credential)]:
            del self._known[digest]
        self._lookups.clear()

    def drop_digest(self, digest: bytes) -> None:
        """Forget one, likewise."""
        self._known.pop(digest, None)
        self._lookups.pop(digest, None)

    async def close(self) -> None:
        await self._tasks.stop()

    async def _ask(self, digest: bytes) -> C | None:
        if self._breaker.blocks():
            raise StoreAwayError(
                "the database of access cannot be reached: this token or session is unknown here"
            )
        lookup = self._lookups.get(digest)
        if lookup is None:
            if len(self._tasks) >= MOST_LOOKUPS:
                raise StoreAwayError(f"{MOST_LOOKUPS} tokens and sessions are looked up already: try again")
            lookup = self._tasks.start(self._look_up(digest), "looks a credential up", awaited=True)
            self._lookups[digest] = lookup
        try:
            async with self._clock.timeout(LOOKUP_TIMEOUT):
                found = await asyncio.shield(lookup)
        except TimeoutError:
            error = StoreAwayError(f"the database of access has not answered within {LOOKUP_TIMEOUT:g} s")
            self._note_failure(error)
            raise error from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise ClosedError("access control was closed: nothing is looked up any more") from None
        if isinstance(found, StoreError):
            raise found
        return found

    async def _look_up(self, digest: bytes) -> C | StoreError | None:
        """Return errors as values: nobody may be left to whom they could be raised."""
        try:
            found = await self._load(digest)
        except StoreError as error:
            self._note_failure(error)
            return error
        else:
            self._note_answer()
            if self._lookups.get(digest) is asyncio.current_task():  # else it was dropped meanwhile
                self._remember(digest, found)
            return found
        finally:
            if self._lookups.get(digest) is asyncio.current_task():
                del self._lookups[digest]

    def _remember(self, digest: bytes, found: C | None) -> None:
        now = self._clock.monotonic()
        self._known.pop(digest, None)
        self._unknown.pop(digest, None)
        if found is None:
            self._unknown[digest] = now
        else:
            self._known[digest] = _Checked(found, now)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        if len(self._unknown) > MOST_UNKNOWN:
            self._unknown.popitem(last=False)

    def _note_failure(self, error: StoreError) -> None:
        if self._breaker.failed():
            log.warning(
                "the database of access cannot be asked: tokens and sessions that were checked in the last"
                " %.0f s are accepted for so long, others are refused with 503: %s",
                GRACE,
                error,
            )

    def _note_answer(self) -> None:
        if (lasted := self._breaker.answered()) is not None:
            log.warning("the database of access answers again, after %.0f s", lasted)
