"""The two steps that change something: put the letters into the store, and see them delivered."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from itertools import islice
from typing import Any, Final

from tidegate.audience.mailing import Letter, Mailing
from tidegate.cli.broadcast.check import CHUNK
from tidegate.cli.broadcast.job import Job
from tidegate.cli.broadcast.pauses import Pauses
from tidegate.cli.broadcast.progress import Pace, Show, phase
from tidegate.cli.broadcast.report import Counts
from tidegate.cli.stores import someone_delivers
from tidegate.errors import NotTheSenderError

LOOK_SHARE: Final = 0.05  # of the time, at most: to count a million messages is not free
SOONEST_LOOK, LATEST_LOOK = 0.25, 30.0  # seconds until the next
HERE: Final = "no worker runs for this store: this command delivers (Ctrl-C ends it, nothing is lost)"
TOO: Final = "this command delivers, beside the workers of this store (Ctrl-C ends it, nothing is lost)"
TRY_TO_SEND: Final = 10.0  # seconds until the next try, should the worker have gone meanwhile


async def put(job: Job, mailing: Mailing, total: int, **options: Any) -> None:  # noqa: ANN401  (a message's)
    """Put all letters, until Ctrl-C. What an earlier run has put is known by its dedup key."""
    done = 0
    letters = (each for each in mailing.letters() if isinstance(each, Letter))  # bad lines were told before
    with phase(job.clock, "putting", total, as_json=job.as_json) as show:
        while not job.stop.is_set() and (chunk := list(islice(letters, CHUNK))):
            await job.gate.send_many(_fields(job, chunk), bot=job.bot, **options)
            done += len(chunk)
            show(done, f"{done:,} of {total:,}")


def _fields(job: Job, letters: list[Letter]) -> Iterator[dict[str, Any]]:
    return ({**letter.fields, "dedup_key": f"{job.prefix}{letter.key}"} for letter in letters)


async def deliver(job: Job) -> None:
    """Until nothing of this broadcast waits, or Ctrl-C. If no process sends for the store, this one does."""
    counts = await job.counts()
    if not counts.waiting:
        return
    async with AsyncExitStack() as stack:
        others = await someone_delivers(job.gate)
        delivers = await _send_here(job, stack)
        job.say(delivers or (TOO if others else HERE))
        next_try, pauses = job.clock.monotonic() + TRY_TO_SEND, Pauses(job)
        with phase(job.clock, "delivering", counts.accepted, as_json=job.as_json) as show:
            async for counts in _looks(job, show):
                if not counts.waiting:
                    break
                await pauses.tell(counts.waiting)
                if delivers and job.clock.monotonic() > next_try:
                    was, delivers = delivers, await _send_here(job, stack)
                    next_try = job.clock.monotonic() + TRY_TO_SEND
                    if delivers is None:
                        job.say(f"no longer: {was}; this command delivers from now on")


async def _looks(job: Job, show: Show) -> AsyncIterator[Counts]:
    """How it stands, now and then, until Ctrl-C."""
    pace, refused = Pace(job.clock), (await job.gate.stats()).refused
    while not job.stop.is_set():
        started = job.clock.monotonic()
        counts = await job.counts()
        cost = job.clock.monotonic() - started
        pace.read(counts.ended)
        heard = (await job.gate.stats()).refused - refused
        words = f"{counts.delivered:,} of {counts.accepted:,}, {pace.words(counts.accepted)}"
        show(counts.ended, f"{words}, {heard:,} refused (429)")
        yield counts
        await _look_later(job, cost)


async def _send_here(job: Job, stack: AsyncExitStack) -> str | None:
    """Deliver in this process until the stack is closed; or else say who does."""
    try:
        await stack.enter_async_context(job.gate.worker())
    except NotTheSenderError as error:
        return str(error).partition(":")[0]  # the rest is advice to others
    return None


async def _look_later(job: Job, cost: float) -> None:
    pause = min(LATEST_LOOK, max(SOONEST_LOOK, cost / LOOK_SHARE))
    with suppress(TimeoutError):
        async with job.clock.timeout(pause):
            await job.stop.wait()
