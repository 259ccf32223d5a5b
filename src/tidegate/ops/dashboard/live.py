"""The live part of pages: rendered once for all who look at it, and sent to them by server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.model import BotId
from tidegate.ops.access import Role
from tidegate.ops.api.problems import TOO_MANY, ProblemError, problem_of
from tidegate.tasks import BackgroundTasks

MOST_STREAMS: Final = 200  # in one process
STREAM_LIFETIME: Final = 60.0  # seconds; the browser connects again. A server that stops need not wait longer
BEAT_EVERY: Final = 15.0  # seconds without a change after which a proxy may think that nobody is there
BEAT: Final = b": still here\n\n"
RESTS: Final = 100  # times as long as rendering took: a list that takes long costs one percent of a core
LONGEST_REST: Final = 15.0  # seconds
RETRY_SOON: Final = b"retry: 2000\n\n"  # milliseconds until the browser connects again


class LiveKey(msgspec.Struct, frozen=True):
    """Viewers with the same key see the same."""

    address: str  # path and query
    role: Role
    bot: BotId | None


class LivePart:
    """One live part: its latest rendering, why there is no later one, and how many follow it."""

    def __init__(self) -> None:
        self.followers = 0
        self.rendered: str | None = None
        self.trouble = ""
        self.tasks = BackgroundTasks()
        self._changed = asyncio.Event()

    def show(self, rendered: str | None) -> None:
        self.rendered, self.trouble = rendered, ""
        self.wake()

    def fail(self, trouble: str) -> None:
        """Say why what was shown last is old, until the next `show`."""
        self.trouble = trouble
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self) -> None:
        """Wait for the next `wake`."""
        await self._changed.wait()


class LiveHub:
    """Renders each live part as long as somebody follows it. `end_streams` ends all streams."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[LiveKey, LivePart] = {}
        self._streams = 0
        self._is_ending = False

    def end_streams(self) -> None:
        """Let every stream end now, and begin no other: a server that stops would wait for them."""
        self._is_ending = True
        for part in self._parts.values():
            part.wake()

    def check_room(self) -> None:
        """Raise ProblemError if too many follow something: a stream that has begun cannot say so."""
        if self._streams >= MOST_STREAMS:
            raise ProblemError(TOO_MANY, "too many pages are followed live: close some", retry_after=30)

    async def follow(
        self, key: LiveKey, render: Callable[[], Awaitable[str]], every: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: the live part at once, and again whenever it has changed.

        While it cannot be rendered, an event `trouble` says why: what is shown is old then.
        Raises ProblemError if too many follow something.
        """
        self.check_room()
        self._streams += 1
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = LivePart()
            part.tasks.start(self._render_often(part, render, every), "renders a live page")
        part.followers += 1
        try:
            yield RETRY_SOON
            async for event in self._events(part):
                yield event
        finally:
            self._streams -= 1
            part.followers -= 1
            if part.followers == 0:
                del self._parts[key]
                await part.tasks.stop()

    async def _events(self, part: LivePart) -> AsyncGenerator[bytes, None]:
        ends_at, told = self._clock.monotonic() + STREAM_LIFETIME, ""
        sent: str | None = None
        while not self._is_ending and (left := ends_at - self._clock.monotonic()) > 0:
            if told != part.trouble:
                told, sent = part.trouble, None  # what is rendered next ends it, also if it is as before
                if told:
                    yield _event("trouble", told)
                continue
            if not told and part.rendered != sent:
                sent = part.rendered
                yield _event("live", sent or "")
                continue  # it may have changed while that was sent
            try:
                async with self._clock.timeout(min(left, BEAT_EVERY)):
                    await part.change()
            except TimeoutError:
                yield BEAT

    async def _render_often(self, part: LivePart, render: Callable[[], Awaitable[str]], every: float) -> None:
        while True:
            begun = self._clock.monotonic()
            try:
                rendered = await render()
            except Exception as error:  # noqa: BLE001  (it is tried again, and whoever follows is told why)
                if not part.trouble:  # else it would be logged each time
                    part.fail(problem_of(error).detail or "it cannot be read now")
            else:
                if part.trouble or rendered != part.rendered:
                    part.show(rendered)
            took = self._clock.monotonic() - begun
            await self._clock.sleep(max(every, min(RESTS * took, LONGEST_REST)))


def _event(name: str, text: str) -> bytes:
    lines = "\n".join(f"data: {line}" for line in text.splitlines())
    return f"event: {name}\n{lines}\n\n".encode()
