"""`tidegate broadcast`: check the file, put its letters, see them delivered, report."""

import asyncio
from pathlib import Path
from sys import maxsize
from typing import Any, Final

import msgspec

from tidegate.app import Tidegate
from tidegate.audience.mailing import Mailing
from tidegate.audience.source import opened
from tidegate.broadcast.campaigns import limit_for
from tidegate.cli import loop, terminal
from tidegate.cli.broadcast.check import Checked, check, forecast, preview, preview_lines
from tidegate.cli.broadcast.job import Job
from tidegate.cli.broadcast.order import Order
from tidegate.cli.broadcast.progress import phase
from tidegate.cli.broadcast.report import NOT_REACHED, Counts, report_table, write_unreached
from tidegate.cli.broadcast.steps import deliver, put
from tidegate.cli.errors import FAILED
from tidegate.cli.gates import choose_bot, gate_at, reached
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.errors import BadInputError, TidegateError
from tidegate.model import Rate
from tidegate.settings import Settings

_SKIP_HINT: Final = (
    "give --name NAME with --skip-bad, so that the mended lines can be sent later under the same name, "
    "without sending to the others again"
)
STOPPED: Final = 130  # as a shell shows it of what Ctrl-C ended


def run(order: Order) -> int:
    """Blocks until everything has ended, or Ctrl-C. Returns the exit code."""
    order.check()
    with opened(order.file) as source:
        mailing = order.mailing(source)
        return loop.run(_run(order, mailing, gate_at(order.store)))


async def _run(order: Order, mailing: Mailing, gate: Tidegate) -> int:
    stop = loop.stop_signal()
    async with reached(gate, order.store):
        bot = choose_bot(gate, order.bot)
        name = order.name or mailing.identity(bot)
        return await broadcast(Job(gate, bot, name, stop, Clock(), order.as_json), order, mailing)


async def broadcast(job: Job, order: Order, mailing: Mailing) -> int:
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


def _refuse_bad(checked: Checked, order: Order) -> None:
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


def _refuse_forgetting(seconds: float, order: Order) -> None:
    """What is forgotten before the end would neither be reported nor be known to the next run."""
    if order.remembered() < 2 * seconds:
        raise BadInputError(
            f"--remember: {order.remember} is too short: sending takes {span(seconds)} or more"
        )


async def _limit(job: Job, mailing: Mailing) -> Rate:
    return await limit_for(job.bot, mailing.params, Settings.read().rules(), job.gate.outbox)


async def _send(job: Job, order: Order, mailing: Mailing, checked: Checked, before: Counts) -> int:
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


def _passed(job: Job, order: Order, counts: Counts) -> bool | None:
    """None: nobody can know yet, and nobody asked to wait until it is known."""
    if job.stop.is_set() or not counts.flawless:
        return False
    if counts.waiting:
        return False if order.wait else None
    return True


async def _write_unreached(job: Job, order: Order, counts: Counts) -> None:
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


def _what_now(job: Job, order: Order, checked: Checked, before: Counts, counts: Counts) -> list[str]:
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
