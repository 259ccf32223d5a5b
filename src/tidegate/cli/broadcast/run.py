"""`tidegate broadcast`: check the file, send its messages, report."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from sys import maxsize
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.broadcast.audience_file import Mailing, open_audience
from tidegate.broadcast.campaign import Campaign, limit_for
from tidegate.broadcast.forecast import seconds_to_send
from tidegate.broadcast.message import BroadcastMessage, dedup_prefix
from tidegate.broadcast.recorder import CampaignFacts, CampaignRecorder
from tidegate.cli import loop, terminal
from tidegate.cli.broadcast import BroadcastOrder
from tidegate.cli.broadcast.file_source import file_source
from tidegate.cli.broadcast.preview import preview, preview_lines
from tidegate.cli.broadcast.report import NOT_REACHED, BroadcastCounts, report_table, write_unreached
from tidegate.cli.checked_file import CheckedFile, check_lines
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.progress import CountRate, ShowProgress, phase
from tidegate.cli.store import choose_bot, gate_for, open_gate, store_option
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError, TidegateError, UnknownNameError
from tidegate.gate import Tidegate
from tidegate.model import BotId, Rate
from tidegate.outbox.campaigns import FileSource
from tidegate.settings import Settings
from tidegate.tasks import BackgroundTasks


class BroadcastJob(NamedTuple):
    """The steps of one broadcast share these."""

    gate: Tidegate
    bot: BotId
    name: str
    stop: asyncio.Event  # Ctrl-C
    clock: Clock
    as_json: bool
    file: FileSource | None = None  # what is stored, to resume it

    async def counts(self) -> BroadcastCounts:
        return BroadcastCounts.of(await self.gate.outbox.tally(self.bot, dedup_prefix(self.name)))

    def say(self, line: str) -> None:
        terminal.announce(line, as_json=self.as_json)


CHATS_CHECKED_BELOW: Final = 1_000  # messages: while more wait, pauses of chats are not looked up


class PauseNotes:
    """Says once that the bot or its chats are paused, and again only after that has ended."""

    def __init__(self, job: BroadcastJob) -> None:
        self._job = job
        self._said: str | None = None

    async def tell(self, waiting: int) -> None:
        line = await self._line(waiting)
        if line is not None and line != self._said:
            self._job.say(line)
        self._said = line

    async def _line(self, waiting: int) -> str | None:
        bot, held = (
            self._job.bot,
            await self._job.gate.core.store.pauses(chats=waiting <= CHATS_CHECKED_BELOW),
        )
        chats = [chat for paused, chat in held if paused == bot]
        if None in chats:
            return f"bot {bot} is paused: nothing is sent until tidegate queue resume --bot {bot}"
        if waiting <= len(chats):  # else messages of other chats are still sent
            return f"{len(chats):,} chats of bot {bot} are paused: their messages wait (tidegate queue stats)"
        return None


LOOK_SHARE: Final = 0.05  # of the time, at most, goes into counting: a million messages take a while
SOONEST_LOOK, LATEST_LOOK = 0.25, 30.0  # seconds between two looks
HERE: Final = "no worker runs for this store: this command delivers (Ctrl-C stops it, nothing is lost)"
TOO: Final = "this command delivers, beside the workers of this store (Ctrl-C stops it, nothing is lost)"
TRY_TO_SEND: Final = 10.0  # seconds between two tries to become the sender, in case the worker has ended


async def put(job: BroadcastJob, order: BroadcastOrder, mailing: Mailing, limit: Rate, total: int) -> None:
    """Put all messages into the store, until Ctrl-C. Their dedup keys tell those of an earlier run."""
    campaign = Campaign(
        job.name,
        (each for each in mailing.messages() if isinstance(each, BroadcastMessage)),  # the rest was reported
        None,
        put=lambda items: job.gate.send_many(items, bot=job.bot, priority=order.priority),
        outbox=job.gate.outbox,
        clock=job.clock,
        rate=limit,
        remember=order.remembered(),
        tracked=False,
    )
    recorder = CampaignRecorder(job.gate.core.store.campaigns, job.clock, _facts(job, order))
    tasks, records = BackgroundTasks(), BackgroundTasks()
    tasks.start(_close_when(job.stop, campaign), "Ctrl-C")
    await recorder.begin(campaign)
    records.start(recorder.follow(campaign), "record")
    try:
        with phase(job.clock, "putting", total, as_json=job.as_json) as show, suppress(ClosedError):
            await campaign.start()
            async for progress in campaign.watch():
                show(progress.read, f"{progress.read:,} of {total:,}")
            await campaign.finished()
            await records.join()
    finally:
        await campaign.close()
        await records.stop()
        await tasks.stop()
    if campaign.progress.bad:
        raise BadInputError(campaign.progress.bad_rows[0].reason)


def _facts(job: BroadcastJob, order: BroadcastOrder) -> CampaignFacts:
    return CampaignFacts(
        bot=job.bot,
        audience=printable("stdin" if order.file == "-" else order.file),
        fields={"priority": order.priority},
        remember=order.remembered(),
        file=job.file,
    )


async def _close_when(stop: asyncio.Event, campaign: Campaign) -> None:
    await stop.wait()
    await campaign.close()


async def deliver(job: BroadcastJob) -> None:
    """Wait until no message of this broadcast waits, or Ctrl-C. If no process sends, this one does."""
    counts = await job.counts()
    if not counts.waiting:
        return
    async with AsyncExitStack() as stack:
        others = (await job.gate.core.store.activity()).delivers
        delivers = await _send_here(job, stack)
        job.say(delivers or (TOO if others else HERE))
        next_try, pauses = job.clock.monotonic() + TRY_TO_SEND, PauseNotes(job)
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
    """Count the messages now and then, until Ctrl-C."""
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
    """Deliver in this process until the stack is closed. If another process sends, return its name."""
    try:
        await stack.enter_async_context(job.gate.worker())
    except NotTheSenderError as error:
        return str(error).partition(":")[0]  # the rest is advice for other callers
    return None


async def _look_later(job: BroadcastJob, cost: float) -> None:
    pause = min(LATEST_LOOK, max(SOONEST_LOOK, cost / LOOK_SHARE))
    with suppress(TimeoutError):
        async with job.clock.timeout(pause):
            await job.stop.wait()


_SKIP_HINT: Final = (
    "give --name NAME with --skip-bad, so that the corrected lines can be sent later under the same name, "
    "without sending to the others again"
)


def run(order: BroadcastOrder) -> int:
    """Block until everything has ended, or Ctrl-C. Return the exit code."""
    order.check()
    with open_audience(order.file) as source:
        mailing = order.mailing(source)
        file = None if order.dry_run else file_source(order, mailing)
        return loop.run(_run(order, mailing, gate_for(order.store), file))


async def _run(order: BroadcastOrder, mailing: Mailing, gate: Tidegate, file: FileSource | None) -> int:
    stop = loop.stop_signal()
    async with open_gate(gate, order.store):
        bot = await choose_bot(gate, order.bot)
        name = order.name or mailing.identity(bot)
        job = BroadcastJob(gate, bot, name, stop, Clock(), order.as_json, file)
        return await broadcast(job, order, mailing)


async def broadcast(job: BroadcastJob, order: BroadcastOrder, mailing: Mailing) -> int:
    """Run a broadcast in an open gate. Return the exit code."""
    with phase(job.clock, "checking", mailing.source.size, as_json=job.as_json) as show:
        checked = await check_lines(mailing.messages(), mailing.source, job.clock, job.stop, show)
    if job.stop.is_set():
        job.say("stopped while checking: nothing was sent")
        return INTERRUPTED
    _refuse_bad(checked, order)
    return await _send(job, order, mailing, checked)


def _refuse_bad(checked: CheckedFile[BroadcastMessage], order: BroadcastOrder) -> None:
    """Raise BadInputError if lines are bad, or there are none."""
    for line in checked.lines():
        terminal.note(line)
    if checked.good and (not checked.bad or (order.skip_bad and order.name is not None)):
        return
    terminal.report({"accepted": 0, **checked.report(), "passed": False}, as_json=order.as_json)
    if not checked.bad:
        raise BadInputError(f"nobody is in {order.file}: nothing was sent")
    hint = _SKIP_HINT if order.skip_bad else "correct them, or send the others with --skip-bad --name NAME"
    hint = hint if checked.good else "correct them"
    raise BadInputError(
        f"{checked.bad:,} of {checked.bad + checked.good:,} lines are bad, and nothing was sent: {hint}"
    )


def _refuse_forgetting(seconds: float, order: BroadcastOrder) -> None:
    """Raise BadInputError if messages could be forgotten before the end: a second run would repeat them."""
    if order.remembered() < 2 * seconds:
        raise BadInputError(
            f"--remember: {order.remember} is too short: sending takes {span(seconds)} or more"
        )


async def _limit(job: BroadcastJob, mailing: Mailing) -> Rate:
    return await limit_for(job.bot, mailing.params, Settings.read().rules(), job.gate.outbox)


async def _send(
    job: BroadcastJob, order: BroadcastOrder, mailing: Mailing, checked: CheckedFile[BroadcastMessage]
) -> int:
    before, limit = await job.counts(), await _limit(job, mailing)
    _refuse_forgetting(seconds_to_send(checked.good, limit), order)
    if order.dry_run:
        found = preview(job.name, checked, before.accepted, limit)
        terminal.report(found, *preview_lines(found), as_json=job.as_json)
        return 0
    if before.accepted:
        job.say(f"resuming: {min(before.accepted, checked.good):,} of {checked.good:,} are already in")
    started, refused = job.clock.monotonic(), (await job.gate.stats()).refused
    await put(job, order, mailing, limit, checked.good)
    if order.wait and not job.stop.is_set():
        await deliver(job)
    counts, seconds = await job.counts(), job.clock.monotonic() - started
    if not counts.waiting:
        await _note_end(job)
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
    lines = _what_now(job, order, checked, before, counts)
    terminal.report(report, report_table(report), *lines, as_json=job.as_json)
    await _write_unreached(job, order, counts)
    if job.stop.is_set():
        return INTERRUPTED
    return FAILED if passed is False else 0


async def _note_end(job: BroadcastJob) -> None:
    """Let the record have the time of its end: else it gets that of whoever looks first."""
    with suppress(UnknownNameError):  # the store could not take the record
        await job.gate.campaign(job.name, bot=job.bot)


def _passed(job: BroadcastJob, order: BroadcastOrder, counts: BroadcastCounts) -> bool | None:
    """Return None if it is not known yet, and was not to be waited for."""
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
        written = await asyncio.to_thread(write_unreached, Path(order.report), found, dedup_prefix(job.name))
    except OSError as error:
        raise TidegateError(
            f"--report: {shown} was not written ({error.strerror}): correct that and run the command again"
        ) from error
    job.say(f"not reached: {written:,}, listed in {shown}")


def _what_now(
    job: BroadcastJob,
    order: BroadcastOrder,
    checked: CheckedFile[BroadcastMessage],
    before: BroadcastCounts,
    counts: BroadcastCounts,
) -> list[str]:
    if job.stop.is_set():
        missing = checked.good - counts.accepted
        resume = "run the same command again"
        if order.file != "-":
            resume += f", or tidegate broadcast resume {job.name}{store_option(order.store)}"
        lines = [f"Stopped. {counts.waiting:,} wait in the store; to resume, {resume}."]
        if missing > 0:
            return [f"{missing:,} are not in the store yet.", *lines]
        return [f"{lines[0]} Or leave them to tidegate worker."]
    lines = []
    if checked.bad:
        left_out = f"{checked.bad:,} bad lines were left out"
        lines.append(f"{left_out}: correct them, and with --name {job.name} only they are sent.")
    if before.accepted == counts.accepted and not before.waiting:
        if counts.cancelled:
            told = (
                f"{counts.cancelled:,} of its messages were cancelled, and nothing was sent now. To send to"
            )
            return [
                *lines,
                f"{told} these chats, give a file of them another --name; --report FILE lists them.",
            ]
        return [*lines, "It was complete: nothing was sent. To send it again, give it another --name."]
    if counts.waiting and not order.wait:
        lines.append(
            "All are in the store: tidegate worker delivers them. To watch, run the same command again."
        )
    return lines
