"""Subscriptions and news: the records, their JSON form, and the port of their store."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from tidegate.errors import BadInputError

NewsKind = Literal["met", "reversed", "gone"]


class Subscription(msgspec.Struct, frozen=True):
    """Somebody waits for something. `data` is kept with it: whatever the bot needs to tell him."""

    key: str  # what is waited for: a record's id, an order's number
    data: dict[str, Any] = {}
    since: float = 0.0  # seconds since the epoch


class News(msgspec.Struct, frozen=True):
    """What has become of it: it came true, did not stay true, or its record is gone."""

    key: str
    value: Any = None  # what was fetched: a row, or True; as JSON has it
    kind: NewsKind = "met"


Notify = Callable[[Subscription, News], Awaitable[None] | None]
"""Told once for each news. What it puts into the gate is put once, even if the process dies meanwhile."""

Fetch = Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]
"""Of these keys, what has come true, with a value. A missing key, None or False: not yet."""


AfterNews = Literal["forget", "watch", "wait"]


class StoredSubscription(msgspec.Struct, frozen=True):
    """A subscription as it is kept.

    `number` rises in the order of adding; one that is added again gets a new one. `met`: it came true, was
    told, and is watched in case that it does not stay so. `news`: what is to be told, and may have been.
    """

    number: int
    subscription: Subscription
    met: bool = False
    news: News | None = None


SubscriptionRef = str | StoredSubscription
"""A key; or one as he was read, who is meant only while he has the same number."""


def key_and_number(who: SubscriptionRef) -> tuple[str, int | None]:
    """His key, and the number that he must have."""
    return (who.subscription.key, who.number) if isinstance(who, StoredSubscription) else (who, None)


class Subscriptions(Protocol):
    """Of one poller, which has a name; several processes may share them. Each step is atomic and durable;
    of many at once, a store may make several steps.
    """

    name: str

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        """Whether each is new. One whose key is there already waits anew, with the new data, and what it was
        to be told is forgotten; or it stays as it is, if they do not replace others.
        """
        ...

    async def remove(self, who: Collection[SubscriptionRef]) -> int:
        """How many there were."""
        ...

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        """Those with a greater number, rising. A page that is not full is the last one."""
        ...

    async def ready(self, news: Sequence[News]) -> list[StoredSubscription]:
        """Note what is to be told, for those whom it concerns, and return these.

        "met" concerns who waits, "reversed" who was told "met", "gone" both; nobody who has news already.
        What was noted is still to be told after a crash, without asking the API again; and, if this raised
        StoreError, may have been noted all the same. Raises NotTheSenderError, and notes nothing, while
        another process is the one that polls: it has read what is to be told, and would not see this.
        """
        ...

    async def told(self, who: Collection[SubscriptionRef], then: AfterNews) -> None:
        """They were told: forget them, or watch on, or let them wait again, with a new number: what they are
        told next is something else. Those without news stay as they are. Raises NotTheSenderError, and
        changes nothing, while another process is the one that polls: it tells them.
        """

    async def count(self) -> int: ...

    async def mark(self) -> str | None:
        """The watermark that was kept last."""
        ...

    async def keep_mark(self, mark: str) -> None: ...

    async def lease(self, seconds: float) -> bool:
        """Whether this process is the one that polls, for so long; ask again before it is over."""
        ...

    async def give_back(self) -> None:
        """Another process may poll at once."""


LONGEST_KEY: Final = 200  # characters
MOST_DATA: Final = 16 * 1024  # bytes of JSON
_SHOWN_OF_KEY: Final = 40  # characters of a key that is too long

_encode: Final = msgspec.json.Encoder().encode
unpack_subscription: Final = msgspec.json.Decoder(Subscription).decode
unpack_news: Final = msgspec.json.Decoder(News).decode


def pack_subscription(subscription: Subscription) -> bytes:
    """Raises BadInputError that names the key."""
    key = check_text(subscription.key, "the key of a subscription")
    try:
        body = _encode(subscription)
        is_same = unpack_subscription(body) == subscription
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the data of {key!r} cannot be kept as JSON: {error}") from error
    if not is_same:
        raise BadInputError(
            f"the data of {key!r} would come back changed: give what JSON has, which is texts, finite"
            " numbers, True, False, None, lists, and dicts whose keys are texts"
        )
    if len(body) > MOST_DATA and (size := len(_encode(subscription.data))) > MOST_DATA:
        raise BadInputError(
            f"the data of {key!r} is {size:,} bytes of JSON, of {MOST_DATA:,} allowed: keep the rest"
            " elsewhere, and here what finds it"
        )
    return body


def pack_news(news: News) -> bytes:
    """Raises BadInputError that names the key. A time, and whatever else JSON lacks, comes back as a text."""
    try:
        return _encode(news)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"what was found for {news.key!r} cannot be kept as JSON: {error}") from error


def check_key(key: object) -> str:
    """Of a subscription: a number is its text, as a record's id often is one."""
    whole = isinstance(key, int) and not isinstance(key, bool)
    return check_text(str(key) if whole else key, "the key of a subscription")


def check_text(text: object, what: str) -> str:
    """A key, or the name of a poller. Raises BadInputError."""
    if not isinstance(text, str):
        raise BadInputError(f"{what} is {text!r}, no text: write str(…) around it")
    if not text:
        raise BadInputError(f"{what} is empty: give a text that tells it from the others")
    if len(text) > LONGEST_KEY:
        shown = text[:_SHOWN_OF_KEY]
        raise BadInputError(f"{what} has {len(text)} characters, of {LONGEST_KEY} allowed: {shown!r}…")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"{what} holds what is no text: {text!r}") from None
    return text


class SubscriptionsProvider(Protocol):
    def subscriptions(self, name: str) -> Subscriptions: ...


class ReopenableSubscriptions(Subscriptions):
    """A gate that is opened again has another store, and a poller is made once. `keeper`: the one of now."""

    def __init__(self, keeper: Callable[[], SubscriptionsProvider], name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self._keeper = keeper
        self._of = keeper()
        self._kept = self._of.subscriptions(name)

    @property
    def _now(self) -> Subscriptions:
        keeper = self._keeper()
        if keeper is not self._of:
            self._of, self._kept = keeper, keeper.subscriptions(self.name)
        return self._kept

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        return await self._now.add(subscriptions, replace=replace)

    async def remove(self, who: Collection[SubscriptionRef]) -> int:
        return await self._now.remove(who)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        return await self._now.after(number, limit)

    async def ready(self, news: Sequence[News]) -> list[StoredSubscription]:
        return await self._now.ready(news)

    async def told(self, who: Collection[SubscriptionRef], then: AfterNews) -> None:
        await self._now.told(who, then)

    async def count(self) -> int:
        return await self._now.count()

    async def mark(self) -> str | None:
        return await self._now.mark()

    async def keep_mark(self, mark: str) -> None:
        await self._now.keep_mark(mark)

    async def lease(self, seconds: float) -> bool:
        return await self._now.lease(seconds)

    async def give_back(self) -> None:
        await self._now.give_back()
