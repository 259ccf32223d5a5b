"""Subscriptions and news: the records, their JSON form, the port of their store, and the store in memory."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.leader_lease import LeaseStore, UncontestedLeases

log = logging.getLogger("tidegate.polling")

LONGEST_KEY: Final = 200  # characters
MOST_DATA: Final = 16 * 1024  # bytes of JSON
_SHOWN_OF_KEY: Final = 40  # characters of a key that is too long
MOST_UNREADABLE_LOGGED: Final = 1_000  # subscriptions

NewsKind = Literal["met", "reversed", "gone"]
AfterNews = Literal["forget", "watch", "wait"]
"""The fate of a subscription once its news was delivered."""


class Subscription(msgspec.Struct, frozen=True):
    """Somebody waits for something. `data` is stored with it, for the callback that notifies them."""

    key: str  # what is waited for: a record's id, an order's number
    data: dict[str, Any] = {}
    since: float = 0.0  # seconds since the epoch


class News(msgspec.Struct, frozen=True):
    """The condition was met, was reversed after it had been met, or the record is gone."""

    key: str
    value: Any = None  # what was fetched: a row, or True; JSON values
    kind: NewsKind = "met"


Notify = Callable[[Subscription, News], Awaitable[None] | None]
"""Called once for each news. Messages that it puts are put once, even if the process dies meanwhile."""

Fetch = Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]
"""Return a value for those of the keys whose condition is met. A missing key, None or False: not yet."""


class StoredSubscription(msgspec.Struct, frozen=True):
    """A subscription in the store.

    `number` rises in the order of adding; a subscription that is added again gets a new one. `met`: its
    "met" news was delivered, and it is watched for a reversal. `news` is to be delivered, and may have been.
    """

    number: int
    subscription: Subscription
    met: bool = False
    news: News | None = None


SubscriptionRef = str | StoredSubscription
"""A key; or a subscription as it was read, which is meant only while it has the same number."""


def key_and_number(ref: SubscriptionRef) -> tuple[str, int | None]:
    """Return the key, and the number that the subscription must have, if any."""
    return (ref.subscription.key, ref.number) if isinstance(ref, StoredSubscription) else (ref, None)


class UnreadableSubscriptions:
    """Subscriptions whose stored bytes cannot be decoded. They are skipped, and logged once each.

    Their bytes stay until the key is removed or added again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged: set[str] = set()
        self.keys: set[str] = set()  # those met since the subscriptions were last read from the first on

    def __len__(self) -> int:
        return len(self.keys)

    def begin(self, after: int) -> None:
        """Subscriptions after this number are about to be read."""
        if after <= 0:
            self.keys.clear()

    def read(
        self, number: int, key: str, body: bytes | None, *, met: bool, news: bytes | None
    ) -> StoredSubscription | None:
        """Decode a stored subscription; None if that cannot be done."""
        try:
            return decode_stored(number, key, body, met=met, news=news)
        except ValueError as error:
            self.keys.add(key)
            if key not in self._logged and len(self._logged) < MOST_UNREADABLE_LOGGED:
                self._logged.add(key)
                text = "subscription %r of %s is unreadable, and skipped until removed or added again: %s"
                log.error(text, key, self._name, error)  # noqa: TRY400
            return None

    def forget(self, keys: Collection[str]) -> None:
        """They were removed or added again."""
        self.keys.difference_update(keys)
        self._logged.difference_update(keys)


def decode_stored(
    number: int, key: str, body: bytes | None, *, met: bool, news: bytes | None
) -> StoredSubscription:
    """Raises ValueError if the bytes cannot be decoded, or are those of another subscription."""
    if body is None:
        raise ValueError("its bytes are gone")
    try:
        subscription = unpack_subscription(body)
        told = None if news is None else unpack_news(news)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if subscription.key != key or (told is not None and told.key != key):
        raise ValueError("its bytes name another key")
    return StoredSubscription(number, subscription, met=met, news=told)


class Subscriptions(Protocol):
    """The subscriptions of one poller, by its name; several processes may share them.

    Each step is atomic and durable; a store may split a call with many subscriptions into several steps.
    One that cannot be decoded is skipped by everything that returns subscriptions, and counts in `count`.
    """

    unreadable: UnreadableSubscriptions

    name: str
    is_durable: bool  # False: they end with the process
    leases: LeaseStore  # the leader holds the lease of `name`

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        """Add them, and return for each whether it is new.

        One whose key exists already waits again, with the new data and without its news; or, if not
        `replace`, stays as it is, unless it is known to be unreadable.
        """
        ...

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        """Return how many were removed."""
        ...

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        """Return those with a greater number, rising. A page that is not full is the last one."""
        ...

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        """Store news for the subscriptions that it concerns, and return these.

        "met" concerns those that wait, "reversed" those that were notified of "met", "gone" both; none that
        has news already. Stored news is delivered even after a crash, without asking the API again. If this
        raises StoreError, the news may have been stored. Raises NotTheSenderError, and stores nothing, while
        another process is the leader: it has read the subscriptions already and would miss this news.
        """
        ...

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        """Their news was delivered: forget them, watch them, or let them wait again with a new number.

        Subscriptions without news stay as they are. Raises NotTheSenderError, and changes nothing, while
        another process is the leader: it delivers their news.
        """

    async def count(self) -> int: ...

    async def watermark(self) -> str | None:
        """Return the watermark that was saved last."""
        ...

    async def save_watermark(self, mark: str) -> None: ...


# After a restart callbacks must get the same data and news as before it: what JSON would change is refused.

_encode: Final = msgspec.json.Encoder().encode
unpack_subscription: Final = msgspec.json.Decoder(Subscription).decode
unpack_news: Final = msgspec.json.Decoder(News).decode


def pack_subscription(subscription: Subscription) -> bytes:
    """Raises BadInputError, which names the key."""
    key = check_text(subscription.key, "the key of a subscription")
    try:
        body = _encode(subscription)
        is_same = unpack_subscription(body) == subscription
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the data of {key!r} cannot be stored as JSON: {error}") from error
    if not is_same:
        raise BadInputError(
            f"the data of {key!r} would come back changed: give JSON values, which are texts, finite"
            " numbers, True, False, None, lists, and dicts whose keys are texts"
        )
    if len(body) > MOST_DATA and (size := len(_encode(subscription.data))) > MOST_DATA:
        raise BadInputError(
            f"the data of {key!r} is {size:,} bytes of JSON, of {MOST_DATA:,} allowed: store it elsewhere,"
            " and its id here"
        )
    return body


def pack_news(news: News) -> bytes:
    """Raises BadInputError, which names the key. Times and other non-JSON values come back as texts."""
    try:
        return _encode(news)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the value found for {news.key!r} cannot be stored as JSON: {error}") from error


def check_key(key: object) -> str:
    """Return the key of a subscription as a text; it may be given as a number, as many record ids are."""
    whole = isinstance(key, int) and not isinstance(key, bool)
    return check_text(str(key) if whole else key, "the key of a subscription")


def check_text(text: object, what: str) -> str:
    """Return a key, or the name of a poller. Raises BadInputError."""
    if not isinstance(text, str):
        raise BadInputError(f"{what} is {text!r}, not a text: write str(…) around it")
    if not text:
        raise BadInputError(f"{what} is empty: give a text that is unique")
    if len(text) > LONGEST_KEY:
        shown = text[:_SHOWN_OF_KEY]
        raise BadInputError(f"{what} has {len(text)} characters, of {LONGEST_KEY} allowed: {shown!r}…")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{what} is not valid Unicode: {text!r}") from None
    return text


class _SubscriptionRow(msgspec.Struct):
    """Stored as bytes, so that changing a returned object changes nothing here."""

    number: int
    body: bytes
    met: bool = False
    news: bytes | None = None

    def concerns(self, kind: NewsKind) -> bool:
        return self.news is None and (kind == "gone" or self.met == (kind == "reversed"))


class MemorySubscriptions(Subscriptions):
    """Subscriptions of one process, which therefore is the leader: for tests and data that may be lost."""

    is_durable = False

    def __init__(self, clock: Clock, name: str = "poller") -> None:  # noqa: ARG002  (as the others take it)
        self.name = check_text(name, "the name of a poller")
        self.unreadable = UnreadableSubscriptions(self.name)
        self._rows: dict[str, _SubscriptionRow] = {}  # by rising numbers
        self.leases: LeaseStore = UncontestedLeases()
        # Numbers are part of effect keys: no other store and no later run may give the same ones.
        self._number = secrets.randbits(48)
        self._watermark: str | None = None

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        packed = [(one.key, pack_subscription(one)) for one in subscriptions]
        return [
            (replace or key not in self._rows or key in self.unreadable.keys) and self._add(key, body)
            for key, body in packed
        ]

    def _add(self, key: str, body: bytes) -> bool:
        is_new = self._rows.pop(key, None) is None or key in self.unreadable.keys
        self.unreadable.forget([key])
        self._number += 1
        self._rows[key] = _SubscriptionRow(self._number, body)
        return is_new

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        pairs = [key_and_number(one) for one in refs]
        for key, _ in pairs:
            check_text(key, "the key of a subscription")
        present = [key for key, number in pairs if self._find(key, number) is not None]
        self.unreadable.forget(present)
        return sum(self._rows.pop(key, None) is not None for key in present)

    def _find(self, key: str, number: int | None) -> _SubscriptionRow | None:
        row = self._rows.get(key)
        return row if row is not None and number in {None, row.number} else None

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        newest_first = reversed(self._rows.items())
        newer = list(takewhile(lambda item: item[1].number > number, newest_first))[::-1]
        self.unreadable.begin(number)
        found = [one for key, row in newer if (one := self._read(key, row)) is not None]
        return found[: max(limit, 0)]

    def _read(self, key: str, row: _SubscriptionRow) -> StoredSubscription | None:
        return self.unreadable.read(row.number, key, row.body, met=row.met, news=row.news)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        packed = [(one, pack_news(one)) for one in news]
        found: list[StoredSubscription] = []
        for one, body in packed:
            row = self._rows.get(one.key)
            if row is not None and row.concerns(one.kind):
                row.news = body
                if (read := self._read(one.key, row)) is not None:
                    found.append(read)
        return found

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        for key, number in [key_and_number(one) for one in refs]:
            row = self._find(key, number)
            if row is None or row.news is None:
                continue
            if then == "forget":
                del self._rows[key]
            elif then == "watch":
                row.met, row.news = True, None
            else:
                self._add(key, row.body)

    async def count(self) -> int:
        return len(self._rows)

    async def watermark(self) -> str | None:
        return self._watermark

    async def save_watermark(self, mark: str) -> None:
        self._watermark = mark


class SubscriptionsProvider(Protocol):
    def subscriptions(self, name: str) -> Subscriptions: ...


def reopenable_subscriptions(open_store: Callable[[], SubscriptionsProvider], name: str) -> Subscriptions:
    """Return the subscriptions in the store that a gate has open now.

    A poller is made once, but a gate that is opened again has a new store object.
    """
    return cast("Subscriptions", _ReopenableSubscriptions(open_store, name))


class _ReopenableSubscriptions(LeaseStore):
    def __init__(self, open_store: Callable[[], SubscriptionsProvider], name: str) -> None:
        self._open_store = open_store
        self._store = open_store()
        self._subscriptions = self._store.subscriptions(name)
        self.name = name
        self.leases = self

    def __getattr__(self, verb: str) -> Any:  # noqa: ANN401  (a verb of `Subscriptions`)
        return getattr(self._current, verb)

    @property
    def _current(self) -> Subscriptions:
        store = self._open_store()
        if store is not self._store:
            self._store, self._subscriptions = store, store.subscriptions(self.name)
        return self._subscriptions

    async def lease(self, name: str, seconds: float) -> bool:
        return await self._current.leases.lease(name, seconds)

    async def give_back(self, name: str) -> None:
        await self._current.leases.give_back(name)
