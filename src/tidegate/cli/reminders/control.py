"""`tidegate reminders list`, `next`, `show`, `stats`, and those that change what `gate.reminders` has."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import amount, chat_of
from tidegate.cli.options import AsJson, BotOption, OfBot, OfChat, Store, Yes
from tidegate.cli.reminders import app
from tidegate.cli.reminders.options import (
    MESSAGE,
    At,
    Count,
    Cron,
    Date,
    Days,
    Every,
    ExpiresIn,
    Handler,
    Late,
    Params,
    ParseModeOption,
    Quiet,
    SpreadOption,
    SpreadOrderOption,
    Start,
    Until,
    Zone,
    given_options,
    message_params,
    naming_the_database,
)
from tidegate.cli.reminders.view import (
    reminder_details,
    reminder_table,
    upcoming_table,
)
from tidegate.cli.store import Result, choose_bot, known_bot, using_gate
from tidegate.cli.terminal import confirm
from tidegate.cli.times import moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.ops.reports import local_time, reminder_json, state_of
from tidegate.reminders.occurrences import next_occurrence
from tidegate.reminders.port import ReminderCounts
from tidegate.reminders.reminder import Daily, Reminder
from tidegate.reminders.schedule_parser import parse_date_and_time, parse_moment, parse_span, parse_time
from tidegate.reminders.schedule_words import schedule_words

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

Which = int | str
NONE: Final = "No reminders. To add some: tidegate reminders import FILE"
KEY: Final = "key:"  # before a key that looks like an id
LARGEST_NUMBER: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
# Options that `none` takes away.
REMOVABLE: Final = frozenset({"spread", "quiet", "start", "until", "count", "expires_in", "handler"})

_NAMED: Final = "As shown by reminders list; or its key, key:17 if that is a number."
Id = Annotated[str, typer.Argument(metavar="ID", help=_NAMED)]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help=_NAMED)]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="At most this many.")]


def _a_number(number: int | None) -> int | None:
    """Check a number that a database has to hold; a range would be shown in --help with all its digits."""
    if number is not None and abs(number) > LARGEST_NUMBER:
        raise typer.BadParameter("the number is too large")
    return number


OfUser = Annotated[
    int | None,
    typer.Option("--user", metavar="N", callback=_a_number, help="Only this user, by the number."),
]
After = Annotated[
    int, typer.Option("--after", metavar="ID", callback=_a_number, help="Only those with a larger id.")
]


@app.command("list", epilog="[b]Try it:[/b]  tidegate reminders list --user 1001")
def list_(
    *,
    user: OfUser = None,
    chat: OfChat = None,
    bot: OfBot = None,
    limit: Limit = 20,
    after: After = 0,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List reminders by their ids: of a user, of a chat, or all."""
    chat_id = chat_of(chat)

    async def look(gate: "Tidegate") -> list[Reminder]:
        # One more than asked for tells whether there are more.
        return await gate.reminders.list(
            user_id=user, chat_id=chat_id, bot=known_bot(gate, bot), after=after, limit=limit + 1
        )

    reminders = _if_any(store, look) or []
    more, reminders = len(reminders) > limit, reminders[:limit]
    found = {"reminders": list(map(reminder_json, reminders)), "more": more}
    if not reminders:
        filtered = after or user is not None or chat is not None or bot is not None
        terminal.report(found, "No such reminder." if filtered else NONE, as_json=as_json)
        _note_unregistered(store, bot)
        return
    rest = [Text(f"For more: --after {reminders[-1].id}, or --limit", style="dim")] if more else []
    terminal.report(found, reminder_table(reminders, Clock().now()), *rest, as_json=as_json)


@app.command("next")
def next_(*, bot: OfBot = None, limit: Limit = 20, store: Store = None, as_json: AsJson = False) -> None:
    """List the reminders that are due next, with the time on the clocks of the user."""

    async def look(gate: "Tidegate") -> list[Reminder]:
        return await gate.reminders.upcoming(bot=known_bot(gate, bot), limit=limit)

    reminders = _if_any(store, look) or []
    picture = upcoming_table(reminders, Clock().now()) if reminders else "No reminder will be due."
    terminal.report({"reminders": list(map(reminder_json, reminders))}, picture, as_json=as_json)
    if not reminders:
        _note_unregistered(store, bot)


def _note_unregistered(store: str | None, bot: int | None) -> None:
    """Say that a bot without reminders is not registered: its number may be mistyped."""

    async def registered(gate: "Tidegate") -> list[int]:
        return sorted(one.id for one in gate.bots())

    if bot is not None and bot not in (known := using_gate(store, registered)):
        names = ", ".join(map(str, known)) or "none"
        terminal.note(f"tidegate: --bot: {bot} is not registered in this store; registered: {names}")


@app.command()
def show(which: Id, *, bot: BotOption = None, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a reminder, its message included."""
    [reminder] = _in_reminders(store, lambda gate: find_reminders(gate, [which], bot))
    terminal.report(reminder_json(reminder), reminder_details(reminder, Clock().now()), as_json=as_json)


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show how many reminders are active, paused and ended, and when the next one is due."""

    async def look(gate: "Tidegate") -> tuple[ReminderCounts, list[Reminder]]:
        return await gate.reminders.counts(), await gate.reminders.upcoming(limit=1)

    counts, upcoming = _if_any(store, look) or (ReminderCounts(0, 0, 0, 0), [])
    next_at = upcoming[0].next_at if upcoming else None
    lines = [f"{counts.active:,} active, {counts.paused:,} paused, {counts.ended:,} ended"]
    if counts.due:
        lines.append(f"{counts.due:,} due now: they fire while tidegate worker or tidegate scheduler runs")
    if next_at is not None:
        lines.append(f"The next is due {moment(next_at, Clock().now())}")
    terminal.report(counts._asdict() | {"next_at": next_at}, *lines, as_json=as_json)


@app.command()
def pause(which: Ids, *, bot: BotOption = None, store: Store = None, as_json: AsJson = False) -> None:
    """Stop reminders until they are resumed. What is already queued of them is cancelled."""
    _change_each(store, which, bot, lambda gate, one: gate.reminders.pause(one.id), as_json=as_json)


@app.command()
def resume(which: Ids, *, bot: BotOption = None, store: Store = None, as_json: AsJson = False) -> None:
    """Let paused reminders go on. What they have missed is not made up for."""
    _change_each(store, which, bot, lambda gate, one: gate.reminders.resume(one.id), as_json=as_json)


@app.command()
def skip(which: Ids, *, bot: BotOption = None, store: Store = None, as_json: AsJson = False) -> None:
    """Leave out the next time, which may be queued already."""
    _change_each(store, which, bot, lambda gate, one: gate.reminders.skip_next(one.id), as_json=as_json)


@app.command(
    epilog="[b]Try it:[/b]  tidegate reminders snooze 17 --for 10m"
    "  ·  tidegate reminders snooze 17 --until 18:30"
)
def snooze(
    which: Id,
    *,
    span: Annotated[str | None, typer.Option("--for", metavar="TIME", help="10m, 2h.")] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="18:30, or 2026-12-31 18:30, on the user's clocks."),
    ] = None,
    bot: BotOption = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Remind again later, and not before. Then the schedule goes on."""
    if span is not None and until is not None:
        raise BadInputError("--for and --until exclude each other: give one")
    if span is None and until is None:
        raise BadInputError("say until when: give --for 10m or --until 18:30")
    seconds = None if span is None else parse_span("--for", span)

    async def act(gate: "Tidegate", one: Reminder) -> Reminder:
        now = gate.clock.now()
        at = now + seconds if seconds is not None else _moment(until or "", one.zone, now)
        return await gate.reminders.snooze(one.id, at)

    _change_each(store, [which], bot, act, as_json=as_json)


def _moment(text: str, zone: str, now: float) -> float:
    """Return the next time that it is so late in the zone, or a date and time there."""
    if parse_date_and_time(text) is not None:
        at = parse_moment("--until", text, zone, now)
        if at <= now:
            raise BadInputError(f"--until: {text} is past in {zone}: give a time to come")
        return at
    try:
        at = next_occurrence(Daily(parse_time(text)), zone, now) or now  # the calendar does not end today
    except BadInputError:
        raise BadInputError(f"--until: {text!r} is not a time: write 18:30, or 2026-12-31 18:30") from None
    return at


@app.command(
    epilog="[b]Try it:[/b]  tidegate reminders change 17 --at 10:00"
    "  ·  tidegate reminders change 17 --quiet none"
)
def change(
    which: Id,
    *,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", rich_help_panel=MESSAGE, help="The text.")
    ] = None,
    parse_mode: ParseModeOption = None,
    param: Params = None,
    handler: Handler = None,
    at: At = None,
    every: Every = None,
    days: Days = None,
    cron: Cron = None,
    date: Date = None,
    zone: Zone = None,
    spread: SpreadOption = None,
    spread_order: SpreadOrderOption = None,
    quiet: Quiet = None,
    start: Start = None,
    until: Until = None,
    count: Count = None,
    late: Late = None,
    expires_in: ExpiresIn = None,
    bot: BotOption = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Change a reminder; what is not given stays. none takes a spread, quiet hours, an end or a count away.

    What is queued is cancelled and, if it was not due yet, queued anew.
    """
    written = {
        "at": at,
        "every": every,
        "days": days,
        "cron": cron,
        "date": date,
        "zone": zone,
        "spread": spread,
        "spread_order": spread_order,
        "quiet": quiet,
        "start": start,
        "until": until,
        "count": count,
        "late": late,
        "expires_in": expires_in,
        "handler": handler,
        "text": text,
        "parse_mode": parse_mode,
    }
    removed = [name for name in REMOVABLE if written[name] == "none"]
    options: dict[str, Any] = message_params(param)
    options |= given_options(**written | dict.fromkeys(removed)) | dict.fromkeys(removed)
    if not options:
        raise BadInputError("say what to change: --text, --at …; see tidegate reminders change --help")
    _change_each(
        store, [which], bot, lambda gate, one: gate.reminders.change(one.id, **options), as_json=as_json
    )


@app.command()
def remove(
    which: Ids, *, bot: BotOption = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Delete reminders, and cancel what is queued of them. Asks first."""
    found = _in_reminders(store, lambda gate: find_reminders(gate, which, bot))
    named = f"reminder {_words(found[0])}" if len(found) == 1 else amount(len(found), "reminder")
    confirm(f"Remove {named} for good?", yes=yes)
    ids = [one.id for one in found]
    removed = _in_reminders(store, lambda gate: gate.reminders.remove(*ids))
    terminal.report({"removed": removed}, f"Removed {amount(removed, 'reminder')}.", as_json=as_json)


def _change_each(
    store: str | None,
    which: Sequence[str],
    bot: int | None,
    act: "Callable[[Tidegate, Reminder], Awaitable[Reminder]]",
    *,
    as_json: bool,
) -> None:
    """Change reminders, all of which are found before the first is changed, and show what they are now."""

    async def work(gate: "Tidegate") -> list[Reminder]:
        return [await act(gate, one) for one in await find_reminders(gate, which, bot)]

    changed = _in_reminders(store, work)
    terminal.report(
        {"reminders": list(map(reminder_json, changed))}, *map(_changed_line, changed), as_json=as_json
    )


def _changed_line(one: Reminder) -> str:
    state = state_of(one)
    then = f"next {local_time(one.next_at, one.zone)} there" if one.next_at is not None else ""
    return f"Reminder {_words(one)}: {then if state == 'active' else state}"


def _words(one: Reminder) -> str:
    return f"{one.id} to {one.chat_id}, {schedule_words(one)} {one.zone}"


async def find_reminders(gate: "Tidegate", which: Sequence[str], bot: int | None) -> list[Reminder]:
    """Return the reminders with these ids or keys, each once. Raises BadInputError for one that is unknown.

    A number is an id, all else a key; `key:17` is the key 17.
    """
    found: dict[int, Reminder] = {}
    for text in which:
        named: Which = int(text) if _NUMBER.fullmatch(text) else text.removeprefix(KEY)
        if named == "":
            raise BadInputError("the id or key of a reminder is empty: see tidegate reminders list")
        whose = known_bot(gate, bot)
        if whose is None and isinstance(named, str):
            whose = await choose_bot(gate, None)
        one = await gate.reminders.get(named, bot=whose)
        if one is None:
            hint = f", or key:{named} if it is a key" if isinstance(named, int) else ""
            raise BadInputError(f"there is no reminder {text}: see tidegate reminders list{hint}")
        found[one.id] = one
    return list(found.values())


def _if_any(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result | None:
    """Run `work` if there are reminders: looking at them creates no database."""

    async def look(gate: "Tidegate") -> Result | None:
        return await work(gate) if await gate.reminders.exist() else None

    with naming_the_database():
        return using_gate(store, look)


def _in_reminders(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result:
    async def look(gate: "Tidegate") -> Result:
        if not await gate.reminders.exist():
            raise BadInputError("there are no reminders here: see tidegate reminders import --help")
        return await work(gate)

    with naming_the_database():
        return using_gate(store, look)
