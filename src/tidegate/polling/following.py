"""What changed since the last time: one request, or a few while very much has changed."""

import math
from collections.abc import Awaitable, Callable, Sequence

from tidegate.clock import Clock
from tidegate.polling.seen import Seen
from tidegate.polling.source import Row, Source
from tidegate.polling.watermark import Watermark

Take = Callable[[Sequence[Row]], Awaitable[None]]


class Changes:
    """Reads on from the watermark, less the overlap: rows come again for a while, and none is left out."""

    def __init__(self, source: Source, clock: Clock, overlap: float, mark: Watermark) -> None:
        self._source = source
        self._clock = clock
        self._overlap = overlap
        self._mark = mark
        self._seen = Seen()
        # A mark that was kept is of another run, which may have seen these rows: they prove nothing anew, and
        # one of them may be of a time to come, of a clock that was wrong.
        self._asked_since = -math.inf if self.since is None else math.inf

    @property
    def since(self) -> float | None:
        return self._mark.since(self._overlap)

    async def read(self, since: float, take: Take) -> int:
        """Give each page away; the number of pages. Only when all were taken does the mark move on."""
        began, pages, after = self._clock.monotonic(), 0, None
        # After a clock was set back old rows are read once more, of which the newest are in its future.
        teaches = since >= self._asked_since
        while after is not None or not pages:
            page = await self._source.changed(since, after)
            pages += 1
            heard = self._clock.monotonic()
            for row in self._seen.fresh(page.rows):
                if teaches:
                    self._mark.saw(row.changed, heard)
            await take(page.rows)
            after = page.after
        self._asked_since = since
        self._mark.passed(began)
        self._seen.forget_before(since)
        return pages
