"""Where subscriptions are kept. One contract suite runs on every kind."""

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec

from tidegate.polling.subscriptions import News, Subscription

Then = Literal["forget", "watch", "wait"]


class Kept(msgspec.Struct, frozen=True):
    """A subscription as it is kept.

    `number` rises in the order of adding; one that is added again gets a new one. `met`: it came true, was
    told, and is watched in case that it does not stay so. `news`: what is to be told, and may have been.
    """

    number: int
    subscription: Subscription
    met: bool = False
    news: News | None = None


Who = str | Kept
"""A key; or one as he was read, who is meant only while he has the same number."""


def named(who: Who) -> tuple[str, int | None]:
    """His key, and the number that he must have."""
    return (who.subscription.key, who.number) if isinstance(who, Kept) else (who, None)


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

    async def remove(self, who: Collection[Who]) -> int:
        """How many there were."""
        ...

    async def after(self, number: int, limit: int = 1_000) -> list[Kept]:
        """Those with a greater number, rising. A page that is not full is the last one."""
        ...

    async def ready(self, news: Sequence[News]) -> list[Kept]:
        """Note what is to be told, for those whom it concerns, and return these.

        "met" concerns who waits, "reversed" who was told "met", "gone" both; nobody who has news already.
        What was noted is still to be told after a crash, without asking the API again; and, if this raised
        StoreError, may have been noted all the same. Raises NotTheSenderError, and notes nothing, while
        another process is the one that polls: it has read what is to be told, and would not see this.
        """
        ...

    async def told(self, who: Collection[Who], then: Then) -> None:
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
