"""The update feed, on every kind of store."""

import sys
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.clock import Clock
from tidegate.inbound.update_feed import (
    DEFAULT_READER,
    FEED_SECONDS,
    FeedPage,
    NewUpdate,
    PushTarget,
    ReadRequest,
    UpdateFeed,
)
from tidegate.model import BotId
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.update_feed import MemoryUpdateFeed
from tidegate.stores.redis.update_feed import RedisUpdateFeed
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.update_feed import SqliteUpdateFeed

BOT, OTHER_BOT = BotId(42), BotId(43)
URL = PushTarget("http://127.0.0.1/hook", "secret")
ALL = ("message", "callback_query", "chat_member")


def update(update_id: int, kind: str = "message", chat: int | None = 7) -> NewUpdate:
    return NewUpdate(update_id, kind, chat, b'{"%b":{"id":%d}}' % (kind.encode(), update_id))


class Readers:
    """The readers of a feed, in short. Each call is a poll of its own."""

    def __init__(self, feed: UpdateFeed, clock: VirtualClock) -> None:
        self.feed = feed
        self.clock = clock
        self._polls = 0

    async def append(self, *update_ids: int, kind: str = "message", bot: BotId = BOT) -> list[bool]:
        return (await self.feed.append(bot, [update(one, kind) for one in update_ids])).is_new

    async def page(self, reader: str = "a", *, bot: BotId = BOT, **request: Any) -> FeedPage:  # noqa: ANN401
        self._polls += 1
        return await self.feed.read(bot, reader, ReadRequest(**{"poll": f"{self._polls}"} | request))

    async def read(self, reader: str = "a", offset: int | None = None, **request: Any) -> list[int]:  # noqa: ANN401
        page = await self.page(reader, offset=offset, **request)
        assert page.state == "ok"
        return [one.number for one in page.updates]


def memory(clock: Clock) -> tuple[UpdateFeed, Any]:
    return MemoryUpdateFeed(clock), None


def sqlite(clock: Clock) -> tuple[UpdateFeed, Any]:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    file = StoreFile(Path(folder.name, "store.db"))
    weakref.finalize(file, folder.cleanup)
    return SqliteUpdateFeed(file, clock), file


def redis(clock: Clock) -> tuple[UpdateFeed, Any]:
    link = InlineConnection(redis_url(), clock)
    return RedisUpdateFeed(link, "holder"), link


KINDS: Final[dict[str, Callable[[Clock], tuple[UpdateFeed, Any]]]] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": redis,
}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, clock: VirtualClock) -> tuple[UpdateFeed, Any]:
    return KINDS[request.param](clock)


@pytest.fixture
async def readers(made: tuple[UpdateFeed, Any], clock: VirtualClock) -> AsyncIterator[Readers]:
    feed, owner = made
    if isinstance(owner, StoreFile):
        await owner.open()
    await feed.open()
    yield Readers(feed, clock)
    await feed.close()
    if owner is not None:
        await owner.close()


def set_bound(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    for module in [one for one in sys.modules if one.startswith(("tidegate.inbound", "tidegate.stores"))]:
        if hasattr(sys.modules[module], name):
            monkeypatch.setattr(sys.modules[module], name, value)


async def test_every_reader_gets_every_update_at_its_own_pace(readers: Readers) -> None:
    assert await readers.read("a") == await readers.read("b") == []
    await readers.append(5, 6, 7)

    assert await readers.read("a", limit=2) == [5, 6]
    assert await readers.read("a", 7) == [7]
    assert await readers.read("a", 8) == []
    assert await readers.read("b") == [5, 6, 7]


async def test_what_is_not_confirmed_is_read_again(readers: Readers) -> None:
    await readers.read()
    await readers.append(5, 6)

    assert await readers.read() == await readers.read() == [5, 6]
    assert await readers.read(offset=6) == await readers.read(offset=6) == [6]
    assert await readers.read(offset=5) == [6]  # what is confirmed is gone


async def test_an_update_comes_back_as_it_was(readers: Readers) -> None:
    await readers.read()
    await readers.feed.append(BOT, [update(5), NewUpdate(6, "unknown", None, b"{}")])

    page = await readers.page()

    assert [one.content() for one in page.updates] == [
        b'{"update_id":5,"message":{"id":5}}',
        b'{"update_id":6}',
    ]


async def test_an_update_that_comes_again_is_left_out_read_or_not(readers: Readers) -> None:
    await readers.read()
    assert await readers.append(5, 6, 5) == [True, True, False]
    assert await readers.read(offset=6) == [6]

    assert await readers.append(5, 6, 7) == [False, False, True]

    assert await readers.read(offset=6) == [6, 7]


async def test_updates_out_of_order_are_numbered_anew_and_nobody_misses_one(readers: Readers) -> None:
    await readers.read()
    await readers.append(5)
    assert await readers.read(offset=6) == []

    await readers.append(4)
    await readers.append(6)

    page = await readers.page(offset=6)
    assert [(one.number, one.body) for one in page.updates] == [(6, update(4).body), (7, update(6).body)]


async def test_ids_that_begin_elsewhere_after_a_quiet_week_are_new(readers: Readers) -> None:
    await readers.append(500, 501)
    await readers.clock.sleep(7 * 86_400)
    assert await readers.read(DEFAULT_READER) == []

    assert await readers.append(3, 501) == [True, True]

    assert await readers.read(DEFAULT_READER) == [502, 503]


async def test_bots_have_feeds_of_their_own(readers: Readers) -> None:
    await readers.read("a")
    await readers.read("a", bot=OTHER_BOT)
    await readers.append(5)
    await readers.append(5, 6, bot=OTHER_BOT)

    assert await readers.read("a") == [5]
    assert await readers.read("a", bot=OTHER_BOT) == [5, 6]
    assert await readers.feed.bots() == [BOT, OTHER_BOT]


async def test_a_new_reader_begins_at_the_next_update_and_the_default_one_with_all_that_is_held(
    readers: Readers,
) -> None:
    await readers.append(5, 6)

    assert await readers.read("new") == []
    assert await readers.read("library", 1) == []  # which has read nothing yet
    assert await readers.read("with-offset", 6) == [6]
    assert await readers.read("from-the-end", -1) == [6]
    assert await readers.read("new", 7) == []
    assert await readers.read(DEFAULT_READER) == [5, 6]  # nobody else confirms for it
    await readers.append(7)
    assert await readers.read("new") == await readers.read("library") == [7]


async def test_updates_that_are_yet_to_come_cannot_be_confirmed(readers: Readers) -> None:
    await readers.read()
    await readers.append(5)

    assert await readers.read(offset=1_000) == []
    await readers.append(6)

    assert await readers.read(offset=1_000) == []
    await readers.append(7)
    assert await readers.read() == [7]


async def test_a_negative_offset_keeps_the_last_ones_of_its_kinds(readers: Readers) -> None:
    await readers.read()
    await readers.append(5, 6, 7)
    await readers.append(8, kind="chat_member")

    assert await readers.read(offset=-2) == [6, 7]
    assert await readers.read() == [6, 7]
    assert await readers.read(offset=-9) == [6, 7]
    assert await readers.read(offset=8) == []
    assert await readers.read(offset=-1) == []


async def test_a_reader_gets_its_kinds_which_are_remembered(readers: Readers) -> None:
    first = await readers.page("all", kinds=ALL)
    await readers.read("usual")
    await readers.append(5)
    await readers.append(6, kind="chat_member")
    await readers.append(7, kind="callback_query")

    assert first.has_new_kinds
    assert await readers.read("all") == [5, 6, 7]
    assert await readers.read("usual") == [5, 7]
    assert (await readers.page("usual", kinds=("callback_query",))).has_new_kinds
    assert not (await readers.page("usual", kinds=("callback_query",))).has_new_kinds
    assert await readers.read("usual") == [7]
    assert await readers.read("usual", kinds=()) == [7]
    found = {one.name: one.kinds for one in await readers.feed.readers(BOT)}
    assert found == {"all": ALL, "usual": (), DEFAULT_READER: ()}


async def test_updates_of_other_kinds_are_passed_over_and_do_not_pile_up(readers: Readers) -> None:
    await readers.read(kinds=("callback_query",))
    await readers.append(*range(5, 15))

    assert await readers.read() == []
    assert await readers.read(kinds=("message",)) == []  # they were not queued for it
    assert await readers.feed.pending(BOT, "a") == 0
    await readers.feed.forget(BOT, DEFAULT_READER)
    await readers.read()
    assert await readers.read("later", -9) == []


async def test_a_wanted_update_far_behind_others_is_found(readers: Readers) -> None:
    await readers.read("rare", kinds=("callback_query",))
    await readers.read("slow")
    for first in range(0, 12_000, 500):
        await readers.append(*range(first + 1, first + 501))
    await readers.append(12_001, kind="callback_query")

    assert await readers.feed.pending(BOT, "slow") == 12_001
    assert await readers.feed.pending(BOT, "rare") == 1
    assert await readers.read("rare") == [12_001]
    assert await readers.read("slow", 12_000) == [12_000, 12_001]


async def test_a_poll_ends_when_the_next_one_of_its_reader_has_begun(readers: Readers) -> None:
    first = await readers.page(poll="first")
    await readers.page(poll="second")
    await readers.page("b", poll="another reader's")
    await readers.append(5)

    again = await readers.page(poll="first", begins=False)
    second = await readers.page(poll="second", begins=False)

    assert (first.state, again.state, list(again.updates)) == ("ok", "superseded", [])
    assert [one.number for one in second.updates] == [5]


async def test_readers_are_told_of_what_is_appended(readers: Readers) -> None:
    heard: list[str] = []
    stop = readers.feed.watch(BOT, lambda: heard.append("bot"))
    readers.feed.watch(OTHER_BOT, lambda: heard.append("other"))

    await readers.append(5)
    await readers.append(5)
    stop()
    await readers.append(6)

    assert heard == ["bot"]


async def test_what_every_reader_has_confirmed_is_deleted(readers: Readers) -> None:
    await readers.read("a")
    await readers.read("b")
    await readers.append(5, 6, 7)
    await readers.feed.forget(BOT, DEFAULT_READER)
    await readers.read("a", 8)
    await readers.read("b", 7)

    assert await readers.read(DEFAULT_READER) == [7]


async def test_a_forgotten_reader_holds_nothing(readers: Readers) -> None:
    await readers.read("a")
    await readers.read("b")
    await readers.append(5)

    assert await readers.feed.forget(BOT, DEFAULT_READER)
    assert await readers.feed.forget(BOT, "b")
    assert not await readers.feed.forget(BOT, "b")

    await readers.read("a", 6)
    assert await readers.read(DEFAULT_READER) == []


async def test_updates_and_readers_end_after_a_day(readers: Readers) -> None:
    await readers.read("gone")
    await readers.append(5)
    await readers.clock.sleep(FEED_SECONDS / 2)
    assert await readers.read(DEFAULT_READER) == [5]
    await readers.read("slow")
    await readers.append(6)
    await readers.clock.sleep(FEED_SECONDS / 2 + 1)

    page = await readers.page(DEFAULT_READER)

    assert (page.dropped.forgotten, page.dropped.lost) == (["gone"], {DEFAULT_READER: 1})
    assert [one.number for one in page.updates] == [6]
    assert [one.name for one in await readers.feed.readers(BOT)] == [DEFAULT_READER, "slow"]
    await readers.clock.sleep(FEED_SECONDS / 2)
    late = await readers.feed.drop_old(BOT)
    assert (late.forgotten, late.lost) == (["slow"], {DEFAULT_READER: 1})
    assert await readers.read(DEFAULT_READER) == []


async def test_the_oldest_updates_are_dropped_and_it_is_said_who_loses_how_many(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_FED_UPDATES", 4)
    for name in ("fast", "slow"):
        await readers.read(name)
    await readers.feed.forget(BOT, DEFAULT_READER)
    await readers.read("picky", kinds=("callback_query",))
    assert await readers.append(1, 2, 3, 4) == [True] * 4
    await readers.read("fast", 4)

    appended = await readers.feed.append(BOT, [update(number) for number in (5, 6, 7)])

    assert dict(appended.dropped.lost) == {"slow": 3}
    assert await readers.read("slow") == [4, 5, 6, 7]
    assert await readers.read("fast") == [4, 5, 6, 7]


async def test_a_bot_has_so_many_readers_at_most(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bound(monkeypatch, "MAX_READERS", 2)
    await readers.read("a")  # beside the default one

    assert (await readers.page("c")).state == "crowded"
    assert not await readers.feed.set_target(BOT, "c", URL)
    assert (await readers.page("c", bot=OTHER_BOT)).state == "ok"
    await readers.clock.sleep(FEED_SECONDS + 1)
    assert (await readers.page("c")).state == "ok"


async def test_an_update_is_known_again_for_so_many_numbers(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "SEEN_NUMBERS", 3)
    await readers.append(1, 2, 3, 4, 5)

    assert await readers.append(3, 4, 5) == [False] * 3
    assert await readers.append(2) == [True]


async def test_updates_of_a_chat_are_erased(readers: Readers) -> None:
    await readers.read()
    await readers.feed.append(BOT, [update(5, chat=7), update(6, chat=8), update(7, chat=None)])
    await readers.feed.append(OTHER_BOT, [update(5, chat=7), update(6, chat=7)])

    assert await readers.feed.erase(7, BOT) == 1
    assert await readers.feed.erase(7) == 2
    assert await readers.feed.erase(7) == 0
    assert await readers.read() == [6, 7]


async def test_updates_of_a_reader_with_a_target_are_for_whoever_posts_them(readers: Readers) -> None:
    await readers.read("a")
    await readers.page(poll="waits")
    assert await readers.feed.set_target(BOT, "a", URL, kinds=ALL)
    await readers.append(5, kind="chat_member")

    polled = await readers.page("a")
    waited = await readers.page("a", poll="waits", begins=False)
    pushed = await readers.page("a", poll="", pushes=True)

    assert (polled.state, waited.state) == ("pushed", "pushed")
    assert ([one.number for one in pushed.updates], pushed.target) == ([5], URL)
    assert await readers.feed.pending(BOT, "a") == 1
    assert await readers.read("a", 6, poll="", pushes=True) == []
    assert (await readers.page("b", pushes=True)).state == "ended"


async def test_a_target_and_its_latest_error_are_kept_until_it_is_taken_away(readers: Readers) -> None:
    assert await readers.feed.set_target(BOT, "new", URL)
    await readers.append(5, 6)
    await readers.feed.note_error(BOT, "new", URL.url, "refused")
    await readers.feed.note_error(BOT, "new", "http://127.0.0.1/other", "of another address")
    await readers.clock.sleep(2 * FEED_SECONDS)
    await readers.append(7)

    [reader] = await readers.feed.readers(BOT)  # the others were not seen for a day
    assert reader.target is not None
    assert (reader.target.url, reader.target.secret, reader.target.error) == (URL.url, "secret", "refused")
    assert reader.target.error_at == pytest.approx(readers.clock.now() - 2 * FEED_SECONDS)

    await readers.feed.set_target(BOT, "new", None, drops_pending=True)
    assert await readers.read("new") == []
    assert (await readers.page("new", pushes=True)).state == "ended"
