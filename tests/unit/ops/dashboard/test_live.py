"""Live parts of pages: rendered once for all who follow, as long as somebody does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

import pytest

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.model import BotId
from tidegate.ops.access import Role
from tidegate.ops.api.problems import ProblemError
from tidegate.ops.dashboard import live
from tidegate.ops.dashboard.live import BEAT, BEAT_EVERY, MOST_STREAMS, STREAM_LIFETIME, LiveHub, LiveKey
from tidegate.sim.virtual_time import VirtualClock
from tidegate.tasks import BackgroundTasks

NOW: Final = LiveKey("/", Role.VIEWER, None)
EVERY: Final = 1.0


class Drawing:
    """A live part that is another one each second, and counts how often it was rendered."""

    def __init__(self, clock: Clock, changes_every: float = 1.0) -> None:
        self._clock = clock
        self._changes_every = changes_every
        self.rendered = 0
        self.fails = False
        self.takes = 0.0  # seconds

    async def __call__(self) -> str:
        self.rendered += 1
        if self.takes:
            await self._clock.sleep(self.takes)
        if self.fails:
            raise StoreAwayError("Redis cannot be reached")
        return f"<p>{self._clock.monotonic() // self._changes_every:.0f}</p>"


class Follower:
    """Somebody with a page open: what came, until it has ended."""

    def __init__(self, hub: LiveHub, drawing: Drawing, key: LiveKey = NOW) -> None:
        self.events: list[bytes] = []
        self._tasks = BackgroundTasks()
        self.task = self._tasks.start(self._follow(hub, key, drawing), "follows a page")

    async def _follow(self, hub: LiveHub, key: LiveKey, drawing: Drawing) -> None:
        async with aclosing(hub.follow(key, drawing, EVERY)) as events:
            async for event in events:
                self.events.append(event)

    async def leave(self) -> None:
        await self._tasks.stop()

    @property
    def shown(self) -> list[bytes]:
        return [event for event in self.events if event.startswith(b"event: live\n")]


@pytest.fixture
async def hub(clock: VirtualClock) -> LiveHub:
    return LiveHub(clock)


@pytest.fixture
async def drawing(clock: VirtualClock) -> Drawing:
    return Drawing(clock)


@pytest.fixture
async def follow(hub: LiveHub, drawing: Drawing) -> AsyncIterator[Callable[..., Follower]]:
    """Begin to follow; whoever has not left at the end leaves then."""
    followers: list[Follower] = []

    def begin(what: Drawing = drawing, key: LiveKey = NOW) -> Follower:
        followers.append(Follower(hub, what, key))
        return followers[-1]

    yield begin
    for follower in followers:
        await follower.leave()


Follow = Callable[..., Follower]


async def test_a_part_is_rendered_once_for_all_who_follow_it(
    follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    followers = [follow() for _ in range(10)]
    await clock.sleep(9.5)
    assert drawing.rendered == 10
    for follower in followers:
        assert follower.shown == [b"event: live\ndata: <p>%d</p>\n\n" % second for second in range(10)]


async def test_whoever_comes_later_sees_it_at_once(
    follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    follow()
    await clock.sleep(5.5)
    late = follow()
    await clock.sleep(0.1)
    assert late.shown == [b"event: live\ndata: <p>5</p>\n\n"]
    assert drawing.rendered == 6


@pytest.mark.parametrize(
    "other",
    [
        LiveKey("/?bot=1", Role.VIEWER, None),
        LiveKey("/", Role.OPERATOR, None),
        LiveKey("/", Role.VIEWER, BotId(1)),
    ],
)
async def test_another_address_role_or_scope_sees_its_own(
    follow: Follow, drawing: Drawing, clock: VirtualClock, other: LiveKey
) -> None:
    theirs = Drawing(clock, 100.0)
    follow()
    stranger = follow(theirs, other)
    await clock.sleep(4.5)
    assert (drawing.rendered, theirs.rendered) == (5, 5)
    assert stranger.shown == [b"event: live\ndata: <p>0</p>\n\n"]


async def test_what_takes_long_to_render_is_rendered_less_often(
    follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    """One hundredth of the time at most: whoever follows a list of a million messages costs one percent."""
    drawing.takes = 0.1
    follow()
    await clock.sleep(20)
    assert drawing.rendered == 2
    drawing.takes = 3.0  # a store that answers late is asked all the same
    await clock.sleep(38)
    assert drawing.rendered == 5


async def test_rendering_ends_with_the_last_follower_and_begins_with_the_next(
    follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    first, second = follow(), follow()
    await clock.sleep(2.5)
    await first.leave()
    await clock.sleep(2)
    assert drawing.rendered == 5
    await second.leave()
    await clock.sleep(60)
    assert drawing.rendered == 5
    third = follow()
    await clock.sleep(0.1)
    assert third.shown == [b"event: live\ndata: <p>64</p>\n\n"]


async def test_streams_end_when_the_server_stops_and_none_begins(
    hub: LiveHub, follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    followers = [follow(), follow(key=LiveKey("/bots", Role.VIEWER, None))]
    await clock.sleep(2.5)
    hub.end_streams()
    late = follow()
    await asyncio.gather(*(one.task for one in (*followers, late)))
    assert clock.monotonic() == 2.5
    assert late.shown == []
    rendered = drawing.rendered
    await clock.sleep(10)
    assert drawing.rendered == rendered


async def test_no_more_streams_than_a_process_can_bear(
    hub: LiveHub, follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    followers = [follow() for _ in range(MOST_STREAMS)]
    await clock.sleep(1)
    with pytest.raises(ProblemError) as refused:
        hub.check_room()
    assert (refused.value.status, refused.value.retry_after) == (429, 30)
    with pytest.raises(ProblemError):
        await anext(hub.follow(NOW, drawing, EVERY))
    await followers[0].leave()
    hub.check_room()
    one = follow()
    await clock.sleep(1)
    assert one.shown


async def test_a_rendering_that_fails_ends_no_stream(
    follow: Follow, drawing: Drawing, clock: VirtualClock
) -> None:
    drawing.fails = True
    follower = follow()
    await clock.sleep(3.5)
    assert follower.shown == []
    drawing.fails = False
    await clock.sleep(1)
    assert follower.shown == [b"event: live\ndata: <p>4</p>\n\n"]
    drawing.fails = True
    await clock.sleep(5)
    drawing.fails = False
    await clock.sleep(1)
    assert follower.shown[1:] == [b"event: live\ndata: <p>10</p>\n\n"]


async def test_a_page_went_on_to_say_live_over_old_numbers_while_its_store_was_away(
    follow: Follow, clock: VirtualClock
) -> None:
    same = Drawing(clock, 1_000.0)
    follower = follow(same)
    await clock.sleep(2.5)
    same.fails = True
    await clock.sleep(5)
    late = follow(same)
    await clock.sleep(0.1)
    trouble = b"event: trouble\ndata: Redis cannot be reached\n\n"
    assert follower.events[-1] == trouble
    assert follower.events.count(trouble) == 1
    assert late.events[-1] == trouble
    assert late.shown == []

    same.fails = False  # what it shows then ends the trouble, also if nothing has changed
    await clock.sleep(1)
    assert follower.events[-1] == late.events[-1] == b"event: live\ndata: <p>0</p>\n\n"


async def test_what_does_not_change_is_not_sent_but_a_proxy_sees_that_somebody_is_there(
    follow: Follow, clock: VirtualClock
) -> None:
    follower = follow(Drawing(clock, 1_000.0))
    await clock.sleep(3 * BEAT_EVERY + 1)
    assert len(follower.shown) == 1
    assert follower.events.count(BEAT) == 3


async def test_a_stream_ends_after_a_while_and_the_browser_is_told_to_come_back(
    follow: Follow, clock: VirtualClock
) -> None:
    follower = follow()
    await follower.task
    assert clock.monotonic() == pytest.approx(STREAM_LIFETIME)
    assert follower.events[0].startswith(b"retry: ")


async def test_a_follower_that_reads_slowly_gets_the_latest_and_not_all_in_between(
    hub: LiveHub, drawing: Drawing, clock: VirtualClock
) -> None:
    seen = []
    async with aclosing(hub.follow(NOW, drawing, EVERY)) as events:
        async for event in events:
            seen.append(event)
            await clock.sleep(10.3)
            if len(seen) == 4:
                break
    assert seen[1:] == [b"event: live\ndata: <p>%d</p>\n\n" % second for second in (10, 20, 30)]


def test_an_event_keeps_the_lines_of_its_text() -> None:
    assert live._event("live", "<p>\n  a\n</p>\n") == b"event: live\ndata: <p>\ndata:   a\ndata: </p>\n\n"  # noqa: SLF001
    # A blank line would end the event, and other line ends are lines for a browser, too.
    for text in ("a\n\nb", "a\rb", "a\r\nb", "a\u2028b", "a\x0bb"):
        event = live._event("live", text).removesuffix(b"\n\n")  # noqa: SLF001
        assert all(line.startswith((b"event: ", b"data: ")) for line in event.split(b"\n"))
