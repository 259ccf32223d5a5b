"""Subscriptions and news: the records, their JSON form, and the port of their store."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from tidegate.errors import BadInputError

LONGEST_KEY: Final = 200  # characters
MOST_DATA: Final = 16 * 1024  # bytes of JSON
_SHOWN_OF_KEY: Final = 40  # characters of a key that is too long

NewsKind = Literal["met", "reversed", "gone"]
AfterNews = Literal["forget", "watch", "wait"]
"""What becomes of a subscription once its news was delivered."""


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


class Subscriptions(Protocol):
    """The subscriptions of one poller, by its name; several processes may share them.

    Each step is atomic and durable; a store may split a call with many subscriptions into several steps.
    """

    name: str
    is_durable: bool  # False: they end with the process

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        """Add them, and return for each whether it is new.

        One whose key exists already waits again, with the new data and without its news; or, if not
        `replace`, stays as it is.
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

    async def lease(self, seconds: float) -> bool:
        """Whether this process is the one that polls, for so long; ask again before it is over."""
        ...

    async def give_back(self) -> None:
        """Another process may poll at once."""


class SubscriptionsProvider(Protocol):
    def subscriptions(self, name: str) -> Subscriptions: ...


class ReopenableSubscriptions(Subscriptions):
    """The subscriptions in the store that a gate has open now.

    A poller is made once, but a gate that is opened again has a new store object.
    """

    def __init__(self, open_store: Callable[[], SubscriptionsProvider], name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self._open_store = open_store
        self._store = open_store()
        self._subscriptions = self._store.subscriptions(name)
        self.is_durable = self._subscriptions.is_durable

    @property
    def _current(self) -> Subscriptions:
        store = self._open_store()
        if store is not self._store:
            self._store, self._subscriptions = store, store.subscriptions(self.name)
        return self._subscriptions

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        return await self._current.add(subscriptions, replace=replace)

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        return await self._current.remove(refs)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        return await self._current.after(number, limit)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        return await self._current.note_news(news)

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        await self._current.settle_news(refs, then)

    async def count(self) -> int:
        return await self._current.count()

    async def watermark(self) -> str | None:
        return await self._current.watermark()

    async def save_watermark(self, mark: str) -> None:
        await self._current.save_watermark(mark)

    async def lease(self, seconds: float) -> bool:
        return await self._current.lease(seconds)

    async def give_back(self) -> None:
        await self._current.give_back()


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
