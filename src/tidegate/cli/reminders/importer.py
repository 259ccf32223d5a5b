"""`tidegate reminders import`: check the file, store its reminders, report."""

import asyncio
import datetime as dt
import difflib
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.broadcast.audience_file import AudienceFile, BadLine, open_audience, rows
from tidegate.cli import loop, terminal
from tidegate.cli.checked_file import CheckedFile, check_lines
from tidegate.cli.errors import INTERRUPTED
from tidegate.cli.messages import amount
from tidegate.cli.progress import phase
from tidegate.cli.reminders import ImportOrder
from tidegate.cli.reminders.options import TEXTS_ONLY, naming_the_database
from tidegate.cli.reminders.view import MADE_KEY, summary
from tidegate.cli.store import choose_bot, gate_for, open_gate, quietly, store_option
from tidegate.cli.terminal import printable
from tidegate.cli.times import moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.gate import Tidegate
from tidegate.model import BotId
from tidegate.ops.reports import local_time
from tidegate.reminders.firing import first_state
from tidegate.reminders.occurrences import all_zones
from tidegate.reminders.port import ADD_AT_ONCE, Addition
from tidegate.reminders.reminder import EveryDays, NewReminder
from tidegate.reminders.reminder_options import OPTION_NAMES, reminder_from_row
from tidegate.reminders.schedule_words import schedule_words
from tidegate.row_template import Row, Template

KEY_BYTES: Final = 15  # of a digest: enough for billions of reminders
GO_ON: Final = "to go on, run the same command again"
KNOWN_COLUMNS: Final = OPTION_NAMES | {"chat_id", "text"}
LIKENESS: Final = 0.8  # of a misspelt column
OTHER_NAMES: Final = {"timezone": "zone", "time_zone": "zone", "tz": "zone", "time": "at"}
ORDINARY_NAMES: Final = frozenset({"country", "account", "state"})  # that look like count and start
SAY_WHEN: Final = (
    "say when: give --every day, --days mon,wed, --date 2026-12-31 or --cron '0 9 * * mon-fri', or add a"
    " column of that name"
)
_ANY_DATE: Final = dt.date(1970, 1, 1)


class ImportJob(NamedTuple):
    """The steps of one import share these."""

    gate: Tidegate
    bot: BotId
    stop: asyncio.Event  # Ctrl-C
    clock: Clock


def run(order: ImportOrder) -> int:
    """Block until everything is stored, or Ctrl-C. Return the exit code."""
    with open_audience(order.file) as source, quietly(), naming_the_database():
        return loop.run(_run(order, source, gate_for(order.store)))


async def _run(order: ImportOrder, source: AudienceFile, gate: Tidegate) -> int:
    stop = loop.stop_signal()
    async with open_gate(gate, order.store):
        bot = await choose_bot(gate, order.bot)
        return await import_reminders(ImportJob(gate, bot, stop, Clock()), order, source)


async def import_reminders(job: ImportJob, order: ImportOrder, source: AudienceFile) -> int:
    """Import a file in an open gate. Return the exit code."""
    await asyncio.to_thread(all_zones)  # it reads files, once
    now = job.clock.now()
    file = ReminderFile(source, order, job.bot, now, job.gate.reminders.checked)
    with phase(job.clock, "checking", source.size, as_json=order.as_json) as show:
        checked = await check_lines(file.reminders(), source, job.clock, job.stop, show)
    if job.stop.is_set():
        terminal.announce("stopped while checking: nothing was imported", as_json=order.as_json)
        return INTERRUPTED
    unused = file.unused_columns()
    _tell_unused(unused, order)
    _refuse_bad(checked, unused, order)
    if order.dry_run:
        found = preview(checked, now) | {"unused_columns": unused}
        terminal.report(found, *preview_lines(found), as_json=order.as_json)
        return 0
    return await _store(job, order, file, checked)


class ReminderFile:
    """The reminders of a file, with the defaults of an order. Every reading gives the same."""

    def __init__(
        self,
        source: AudienceFile,
        order: ImportOrder,
        bot: BotId,
        now: float,
        check: Callable[[NewReminder], NewReminder],
    ) -> None:
        self._source, self._defaults = source, order.defaults
        self._bot, self._now, self._check = bot, now, check
        text, parse_mode = order.defaults.get("text"), order.defaults.get("parse_mode")
        self._key = None if order.key is None else _template("--key", order.key)
        self._needed = ["chat_id"] if "zone" in order.defaults else ["chat_id", "zone"]
        self._needed += () if text is None else _template("--text", text, parse_mode).fields
        self._needed += () if self._key is None else self._key.fields
        self._columns: dict[str, None] = {}  # of the lines that were read, in their order

    def unused_columns(self) -> list[str]:
        """Return the columns that were read and are neither an option nor part of a template."""
        used = KNOWN_COLUMNS.union(self._needed)
        return [name for name in self._columns if name and name not in used]

    def reminders(self) -> Iterator[NewReminder | BadLine]:
        """Yield each line as a reminder that can be stored, with a key, or with the reason why not.

        Only the keys are kept in memory: 15 MB for 100,000.
        """
        seen: dict[str, int] = {}
        for line in rows(self._source, self._needed):
            if isinstance(line, BadLine):
                yield line
                continue
            self._columns.update(dict.fromkeys(line.row))
            try:
                yield self._reminder(line.number, line.row, seen)
            except BadInputError as error:
                reason = str(error)
                yield BadLine(line.number, SAY_WHEN if reason.startswith("say when:") else reason)

    def _reminder(self, number: int, row: Row, seen: dict[str, int]) -> NewReminder:
        if self._key is not None and not str(row.get("key") or "").strip():
            row = {**row, "key": self._key.render(row)}
        new = reminder_from_row(row, self._defaults, bot=self._bot, now=self._now)
        if new.handler is None and "text" not in new.fields:
            raise BadInputError("text is missing: add a field text, or give --text")
        key = new.key or made_key(new)
        if key in seen:
            same = "the same reminder" if new.key is None else f"the key {key!r}"
            raise BadInputError(f"{same} is in line {seen[key]}: remove one of them")
        seen[key] = number
        return self._check(msgspec.structs.replace(new, key=key))


def _template(option: str, text: str, parse_mode: Any = None) -> Template:  # noqa: ANN401  (of a list)
    if not text.strip():
        raise BadInputError(f"{option} is empty: write a text, such as water-{{chat_id}}, or leave it out")
    try:
        return Template(text, parse_mode)
    except BadInputError as error:
        raise BadInputError(f"{option}: {error}") from error


def made_key(new: NewReminder) -> str:
    """Return the key of a reminder that has none: it is known by its chat, its local times and its message.

    Other options, such as the zone or quiet hours, are not part of it: imported again, they are changed.
    """
    schedule = new.schedule
    if isinstance(schedule, EveryDays):
        schedule = msgspec.structs.replace(schedule, start=_ANY_DATE)  # it depends on the day of the import
    whole = msgspec.json.encode((new.chat_id, schedule, new.handler, new.fields), order="deterministic")
    return MADE_KEY + hashlib.blake2b(whole, digest_size=KEY_BYTES).hexdigest()


def meant_columns(unused: Iterable[str]) -> dict[str, str]:
    """Return the columns that seem to be misspelt, and what may be meant: `evry` is `every`."""
    meant: dict[str, str] = {}
    for name in unused:
        plain = "_".join(name.lower().replace("-", " ").split())
        near = [] if plain in ORDINARY_NAMES else difflib.get_close_matches(plain, KNOWN_COLUMNS, 1, LIKENESS)
        first = plain.partition("_")[0]  # quiet_hours
        if known := OTHER_NAMES.get(plain) or next(iter(near), first if first in KNOWN_COLUMNS else None):
            meant[name] = known
    return meant


def _tell_unused(unused: list[str], order: ImportOrder) -> None:
    """Note columns that are not used. Raises BadInputError if one seems misspelt, unless --skip-bad."""
    if not unused:
        return
    meant = meant_columns(unused)
    hint = f" ({', '.join(meant.values())} may be meant)" if meant else ""
    told = f"columns not used: {printable(', '.join(unused))}{hint}"
    if "method" in unused:
        told += f"; {TEXTS_ONLY}"
    if order.skip_bad or (not meant and "method" not in unused):
        terminal.note(f"tidegate: {told}")
        return
    todo = "rename or remove them, or import without them with --skip-bad"
    error = f"{told}; nothing was imported: {todo}"
    refused = {"error": error, "imported": 0, "unused_columns": unused, "passed": False}
    terminal.report(refused, as_json=order.as_json)
    raise BadInputError(error)


def _refuse_bad(checked: CheckedFile[NewReminder], unused: list[str], order: ImportOrder) -> None:
    """Raise BadInputError if lines are bad, or there are none."""
    for line in checked.lines():
        terminal.note(line)
    if checked.good and (not checked.bad or order.skip_bad):
        return
    error = f"nobody is in {order.file}: nothing was imported"
    if checked.bad:
        hint = "correct them, or import the others with --skip-bad" if checked.good else "correct them"
        count = f"{checked.bad:,} of {checked.bad + checked.good:,} lines are bad"
        error = f"{count}, and nothing was imported: {hint}"
    refused = {"error": error, "imported": 0, **checked.report(), "unused_columns": unused, "passed": False}
    terminal.report(refused, as_json=order.as_json)
    raise BadInputError(error)


def preview(checked: CheckedFile[NewReminder], now: float) -> dict[str, Any]:
    """Build the report of a dry run. Times of `first` are local."""
    first = [
        {
            "chat_id": new.chat_id,
            "when": schedule_words(new),
            "zone": new.zone,
            "next_local": local_time(first_state(new, 0, now).occurrence_at or now, new.zone),
            "what": summary(new),
        }
        for new in checked.samples
    ]
    return {"dry_run": True, "would_import": checked.good, **checked.report(), "first": first}


def preview_lines(found: dict[str, Any]) -> list[str]:
    """Return the report of a dry run for a person."""
    lines: list[str] = []
    for one in found["first"]:
        lines.append(f"to {one['chat_id']}, {one['when']} {one['zone']}, first {one['next_local']} there:")
        lines += [f"  {printable(line)}" for line in one["what"].splitlines()]
    count = amount(found["would_import"], "reminder")
    return [*lines, f"{count} would be imported; nothing was: this is a dry run"]


class ImportCounts(msgspec.Struct):
    """The counts of imported lines, and when the first and the last of them are due next."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    paused: int = 0
    first_due_at: float = math.inf
    last_due_at: float = -math.inf

    @property
    def imported(self) -> int:
        return self.added + self.replaced + self.unchanged

    def add(self, additions: Sequence[Addition]) -> None:
        self.unchanged += sum(one.is_unchanged for one in additions)
        self.replaced += sum(one.replaced is not None and not one.is_unchanged for one in additions)
        self.added += sum(one.replaced is None for one in additions)
        active = [one.reminder for one in additions if not one.reminder.paused]
        self.paused += len(additions) - len(active)
        times = [one.next_at for one in active if one.next_at is not None]
        self.first_due_at = min([self.first_due_at, *times])
        self.last_due_at = max([self.last_due_at, *times])


async def _store(
    job: ImportJob, order: ImportOrder, file: ReminderFile, checked: CheckedFile[NewReminder]
) -> int:
    started, counts = job.clock.monotonic(), ImportCounts()
    good = (one for one in file.reminders() if isinstance(one, NewReminder))  # the rest was reported
    with phase(job.clock, "importing", checked.good, as_json=order.as_json) as show:
        while not job.stop.is_set() and (chunk := list(islice(good, ADD_AT_ONCE))):
            try:
                counts.add(await job.gate.reminders.store_all(chunk, stays_paused=True))
            except StoreError as error:
                stored = f"{counts.imported:,} of {checked.good:,} reminders are stored"
                raise StoreError(f"{error}; {stored}: {GO_ON}") from error
            show(counts.imported, f"{counts.imported:,} of {checked.good:,}")
    report = {
        "imported": counts.imported,
        **msgspec.structs.asdict(counts),
        **checked.report(),
        "unused_columns": file.unused_columns(),
        "seconds": round(job.clock.monotonic() - started, 1),
        "passed": counts.imported == checked.good,
    }
    terminal.report(report, *_report_lines(report, checked, job.clock.now()), as_json=order.as_json)
    if not report["passed"]:
        return INTERRUPTED
    if not (await job.gate.core.store.activity()).delivers:
        hint = f"start tidegate worker{store_option(order.store)}, or your bot"
        terminal.note(f"tidegate: no worker runs, so nothing is sent: {hint}")
    return 0


def _report_lines(report: dict[str, Any], checked: CheckedFile[NewReminder], now: float) -> list[str]:
    if not report["passed"]:
        return [f"Stopped: {report['imported']:,} of {checked.good:,} reminders are stored; {GO_ON}."]
    parts = ", ".join(
        f"{report[name]:,} {word}"
        for name, word in (("added", "new"), ("replaced", "replaced"), ("unchanged", "as before"))
        if report[name]
    )
    lines = [f"Imported {amount(report['imported'], 'reminder')} in {report['seconds']:,.1f} s: {parts}."]
    if report["paused"]:
        count = amount(report["paused"], "is paused, and stays", "are paused, and stay")
        lines.append(f"{count} so: see tidegate reminders resume.")
    if math.isfinite(report["first_due_at"]):
        first, last = (moment(report[name], now) for name in ("first_due_at", "last_due_at"))
        lines.append(f"The next is due {first}" + (f", the last of them {last}." if last != first else "."))
    if checked.bad:
        left_out = amount(checked.bad, "bad line was", "bad lines were")
        lines.append(f"{left_out} left out: correct them, and run the same command again.")
    return lines
