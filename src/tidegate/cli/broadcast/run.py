"""`tidegate broadcast`: check the file, send its messages, report."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from itertools import islice
from pathlib import Path
from sys import maxsize
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import RenderableType

from tidegate.broadcast.audience_file import FileMessage, Mailing, open_audience
from tidegate.broadcast.campaign import limit_for
from tidegate.cli import loop, terminal
from tidegate.cli.broadcast.check import CHUNK, CheckedFile, check, forecast, preview, preview_lines
from tidegate.cli.broadcast.command import BroadcastOrder
from tidegate.cli.broadcast.report import NOT_REACHED, BroadcastCounts, report_table, write_unreached
from tidegate.cli.errors import FAILED
from tidegate.cli.progress import CountRate, ShowProgress, phase
from tidegate.cli.store import choose_bot, gate_at, paused_of, reached, someone_delivers
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.errors import BadInputError, NotTheSenderError, TidegateError
from tidegate.gate import Tidegate
from tidegate.model import BotId, Rate
from tidegate.settings import Settings


class BroadcastJob(NamedTuple):
    gate: Tidegate
    bot: BotId
    name: str
    stop: asyncio.Event  # Ctrl-C
    clock: Clock
    as_json: bool

    @property
    def prefix(self) -> str:
        """Of the dedup keys of all its messages, and of no others."""
        return f"broadcast:{self.name}:"

    async def counts(self) -> BroadcastCounts:
        return BroadcastCounts.of(await self.gate.outbox.tally(self.bot, self.prefix))

    def say(self, line: str) -> None:
        if self.as_json:
            terminal.note(line)
        else:
            terminal.put_line(line)

    def show(self, report: Mapping[str, object], *pictures: RenderableType) -> None:
        """The report for a program, or the pictures for a person."""
        if self.as_json:
            terminal.put_json(report)
        else:
            for picture in pictures:
                # A text is put as it is: Rich would read what stands in brackets as markup.
                terminal.put_line(picture) if isinstance(picture, str) else terminal.put(picture)


FEW: Final = 1_000  # messages: while more wait, chats are not looked at


class Pauses:
    """Says once that there is a pause, and again only after it was over."""

    def __init__(self, job: BroadcastJob) -> None:
        self._job = job
        self._said: str | None = None

    async def tell(self, waiting: int) -> None:
        line = await self._line(waiting)
        if line is not None and line != self._said:
            self._job.say(line)
        self._said = line

    async def _line(self, waiting: int) -> str | None:
        bot, held = self._job.bot, await paused_of(self._job.gate, chats=waiting <= FEW)
        chats = [chat for paused, chat in held if paused == bot]
        if None in chats:
            return f"bot {bot} is paused: nothing leaves until tidegate queue resume --bot {bot}"
        if waiting <= len(chats):  # before that, others move
            return (
                f"{len(chats):,} chats of bot {bot} are paused: what is for them waits (tidegate queue stats)"
            )
        return None


LOOK_SHARE: Final = 0.05  # of the time, at most: to count a million messages is not free
SOONEST_LOOK, LATEST_LOOK = 0.25, 30.0  # seconds until the next
HERE: Final = "no worker runs for this store: this command delivers (Ctrl-C ends it, nothing is lost)"
TOO: Final = "this command delivers, beside the workers of this store (Ctrl-C ends it, nothing is lost)"
TRY_TO_SEND: Final = 10.0  # seconds until the next try, should the worker have gone meanwhile


async def put(job: BroadcastJob, mailing: Mailing, total: int, **options: Any) -> None:  # noqa: ANN401  (a message's)
    """Put all letters, until Ctrl-C. What an earlier run has put is known by its dedup key."""
    done = 0
    letters = (
        each for each in mailing.letters() if isinstance(each, FileMessage)
    )  # bad lines were told before
    with phase(job.clock, "putting", total, as_json=job.as_json) as show:
        while not job.stop.is_set() and (chunk := list(islice(letters, CHUNK))):
            await job.gate.send_many(_fields(job, chunk), bot=job.bot, **options)
            done += len(chunk)
            show(done, f"{done:,} of {total:,}")


def _fields(job: BroadcastJob, letters: list[FileMessage]) -> Iterator[dict[str, Any]]:
    return ({**letter.fields, "dedup_key": f"{job.prefix}{letter.key}"} for letter in letters)


async def deliver(job: BroadcastJob) -> None:
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


async def _looks(job: BroadcastJob, show: ShowProgress) -> AsyncIterator[BroadcastCounts]:
    """How it stands, now and then, until Ctrl-C."""
    pace, refused = CountRate(job.clock), (await job.gate.stats()).refused
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


async def _send_here(job: BroadcastJob, stack: AsyncExitStack) -> str | None:
    """Deliver in this process until the stack is closed; or else say who does."""
    try:
        await stack.enter_async_context(job.gate.worker())
    except NotTheSenderError as error:
        return str(error).partition(":")[0]  # the rest is advice to others
    return None


async def _look_later(job: BroadcastJob, cost: float) -> None:
    pause = min(LATEST_LOOK, max(SOONEST_LOOK, cost / LOOK_SHARE))
    with suppress(TimeoutError):
        async with job.clock.timeout(pause):
            await job.stop.wait()


_SKIP_HINT: Final = (
    "give --name NAME with --skip-bad, so that the mended lines can be sent later under the same name, "
    "without sending to the others again"
)
STOPPED: Final = 130  # as a shell shows it of what Ctrl-C ended


def run(order: BroadcastOrder) -> int:
    """Blocks until everything has ended, or Ctrl-C. Returns the exit code."""
    order.check()
    with open_audience(order.file) as source:
        mailing = order.mailing(source)
        return loop.run(_run(order, mailing, gate_at(order.store)))


async def _run(order: BroadcastOrder, mailing: Mailing, gate: Tidegate) -> int:
    stop = loop.stop_signal()
    async with reached(gate, order.store):
        bot = choose_bot(gate, order.bot)
        name = order.name or mailing.identity(bot)
        return await broadcast(BroadcastJob(gate, bot, name, stop, Clock(), order.as_json), order, mailing)


async def broadcast(job: BroadcastJob, order: BroadcastOrder, mailing: Mailing) -> int:
    """The whole of it, in an open gate. Returns the exit code."""
    with phase(job.clock, "checking", mailing.source.size, as_json=job.as_json) as show:
        checked = await check(mailing, job.clock, job.stop, show)
    if job.stop.is_set():
        job.say("stopped while checking: nothing was sent")
        return STOPPED
    _refuse_bad(checked, order)
    before, limit = await job.counts(), await _limit(job, mailing)
    _refuse_forgetting(forecast(checked.good, limit), order)
    if order.dry_run:
        found = preview(job.name, checked, before.accepted, limit)
        job.show(found, *preview_lines(found))
        return 0
    if before.accepted:
        job.say(f"resuming: {min(before.accepted, checked.good):,} of {checked.good:,} are in already")
    return await _send(job, order, mailing, checked, before)


def _refuse_bad(checked: CheckedFile, order: BroadcastOrder) -> None:
    """Raises BadInputError if lines are bad, or there are none."""
    for line in checked.lines():
        terminal.note(line)
    if checked.good and (not checked.bad or (order.skip_bad and order.name is not None)):
        return
    if order.as_json:
        terminal.put_json({"accepted": 0, **checked.report(), "passed": False})
    if not checked.bad:
        raise BadInputError(f"nobody is in {order.file}: nothing was sent")
    hint = _SKIP_HINT if order.skip_bad else "mend them, or send the others with --skip-bad --name NAME"
    hint = hint if checked.good else "mend them"
    raise BadInputError(
        f"{checked.bad:,} of {checked.bad + checked.good:,} lines are bad, and nothing was sent: {hint}"
    )


def _refuse_forgetting(seconds: float, order: BroadcastOrder) -> None:
    """What is forgotten before the end would neither be reported nor be known to the next run."""
    if order.remembered() < 2 * seconds:
        raise BadInputError(
            f"--remember: {order.remember} is too short: sending takes {span(seconds)} or more"
        )


async def _limit(job: BroadcastJob, mailing: Mailing) -> Rate:
    return await limit_for(job.bot, mailing.params, Settings.read().rules(), job.gate.outbox)


async def _send(
    job: BroadcastJob, order: BroadcastOrder, mailing: Mailing, checked: CheckedFile, before: BroadcastCounts
) -> int:
    started, refused = job.clock.monotonic(), (await job.gate.stats()).refused
    await put(job, mailing, checked.good, priority=order.priority, dedup_for=order.remembered())
    if order.wait and not job.stop.is_set():
        await deliver(job)
    counts, seconds = await job.counts(), job.clock.monotonic() - started
    passed = _passed(job, order, counts)
    report: dict[str, Any] = {
        "name": job.name,
        **msgspec.structs.asdict(counts),
        **checked.report(),
        "refused": (await job.gate.stats()).refused - refused,
        "seconds": round(seconds, 1),
        "avg_rps": round((counts.delivered - before.delivered) / seconds, 1) if seconds else 0.0,
        "passed": passed,
    }
    job.show(report, report_table(report), *_what_now(job, order, checked, before, counts))
    await _write_unreached(job, order, counts)
    if job.stop.is_set():
        return STOPPED
    return FAILED if passed is False else 0


def _passed(job: BroadcastJob, order: BroadcastOrder, counts: BroadcastCounts) -> bool | None:
    """None: nobody can know yet, and nobody asked to wait until it is known."""
    if job.stop.is_set() or not counts.flawless:
        return False
    if counts.waiting:
        return False if order.wait else None
    return True


async def _write_unreached(job: BroadcastJob, order: BroadcastOrder, counts: BroadcastCounts) -> None:
    if order.report is None:
        return
    some = counts.ended > counts.delivered
    found = await job.gate.outbox.records(bot=job.bot, states=NOT_REACHED, limit=maxsize) if some else []
    shown = printable(order.report)
    try:
        written = await asyncio.to_thread(write_unreached, Path(order.report), found, job.prefix)
    except OSError as error:
        raise TidegateError(
            f"--report: {shown} was not written ({error.strerror}): mend that and run the same command again"
        ) from error
    job.say(f"{written:,} who were not reached are in {shown}")


def _what_now(
    job: BroadcastJob,
    order: BroadcastOrder,
    checked: CheckedFile,
    before: BroadcastCounts,
    counts: BroadcastCounts,
) -> list[str]:
    if job.stop.is_set():
        missing = checked.good - counts.accepted
        lines = [f"Stopped. {counts.waiting:,} wait in the store; to go on, run the same command again."]
        if missing > 0:
            return [f"{missing:,} are not in the store yet.", *lines]
        return [f"{lines[0]} Or leave them to tidegate worker."]
    lines = []
    if checked.bad:
        left_out = f"{checked.bad:,} bad lines were left out"
        lines.append(f"{left_out}: mend them, and with --name {job.name} only they are sent.")
    if before.accepted == counts.accepted and not before.waiting:
        return [*lines, "It was complete: nothing was sent. To send it again, give it another --name."]
    if counts.waiting and not order.wait:
        lines.append(
            "All are in the store: tidegate worker delivers them. To watch, run the same command again."
        )
    return lines
