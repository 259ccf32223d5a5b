"""`tidegate plan`: when the last of many reminders leaves, and what would change that."""

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, assert_never

import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table

from tidegate.broadcast.audience_file import BadLine, open_audience, rows
from tidegate.cli import terminal
from tidegate.cli.options import AsJson
from tidegate.cli.progress import phase
from tidegate.cli.svg import reserve, save, svg_document, svg_line, svg_rect, svg_text
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Rate
from tidegate.reminders.departure_plan import (
    ADVICE,
    Alternative,
    DeparturePlan,
    MinuteCount,
    SizeAdvice,
    advice_for,
    advised_window,
    alternatives,
    due_times,
    plan_departures,
    scheduled_times,
)
from tidegate.reminders.occurrences import instant, time_zone
from tidegate.reminders.reminder import Spread
from tidegate.reminders.reminder_options import reminder_from_row
from tidegate.reminders.schedule_parser import parse_time, parse_window, parse_zone
from tidegate.settings import Settings

app = typer.Typer(add_completion=False)

MOST_USERS: Final = 1_000_000
MOST_ROWS: Final = 30  # of the table
MOST_BAD_LINES: Final = 20  # that are shown
DAY: Final = 86_400
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 240, 720, 1_440)  # minutes in one row
BAR: Final = 30  # characters
SECONDS_BELOW, TENTHS_BELOW, HOURS_FROM = 120, 600, 10_800  # how a span of time is written
CENTRED_FROM: Final = 7_200.0  # seconds: a longer window lies around the time, a shorter one begins with it
_MILLISECONDS = re.compile(r"(\d{1,5})(?:ms)?", re.ASCII)

Users = Annotated[int | None, typer.Option(metavar="N", help="People who have a reminder at the same time.")]
At = Annotated[str, typer.Option(metavar="HH:MM", help="When it is due; in a file, if a row does not say.")]
RateOption = Annotated[
    str | None, typer.Option("--rate", metavar="CALLS/SECONDS", help="Default: TIDEGATE_BOT_RATE, or 30/1.")
]
Window = Annotated[
    str | None, typer.Option(metavar="HH:MM-HH:MM", help="Spread over this window, instead of --at.")
]
ScheduleFile = Annotated[
    str | None,
    typer.Option("--schedule", metavar="FILE", help="Plan a day of these reminders: CSV or JSON lines."),
]
Zone = Annotated[
    str, typer.Option(metavar="ZONE", help="Of the day of a file, and of its rows that do not say.")
]
RoundTrip = Annotated[str, typer.Option(metavar="MS", help="Milliseconds from a call to its answer.")]
Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the curve as a chart into this file.")
]


@app.command(
    epilog="[b]Try it:[/b]  tidegate plan --users 10000 --rate 25/1  ·  tidegate plan --users 100000"
    " --window 08:00-10:00  ·  tidegate plan --schedule reminders.csv --zone Europe/Berlin"
)
def plan(
    *,
    users: Users = None,
    at: At = "09:00",
    rate: RateOption = None,
    window: Window = None,
    schedule: ScheduleFile = None,
    zone: Zone = "UTC",
    round_trip: RoundTrip = "50ms",
    svg: Svg = None,
    as_json: AsJson = False,
) -> None:
    """Say when the last of many reminders leaves, and what would change that.

    Nothing is sent or stored. The figures come from the parts that schedule and send. They hold if nothing
    else is sent meanwhile: n calls per W seconds and a round trip of r give n/(W + r) a second.
    """
    zone = parse_zone(zone)
    if svg is not None:
        reserve(svg)
    allowed = Settings.read().rules().bot if rate is None else Rate.parse(rate)
    seconds = _round_trip(round_trip)
    if schedule is not None:
        if users is not None or window is not None:
            raise BadInputError("--schedule says who and when: leave out --users and --window")
        users, unspread = _times_of_file(schedule, at, zone, as_json=as_json)
        made = plan_departures(unspread, allowed, seconds)
    elif users is None:
        raise BadInputError("how many reminders? Give --users 10000, or a file of them: --schedule FILE")
    else:
        made, unspread = _plan_users(users, at, window, allowed, seconds)
    changes, advice = alternatives(made, unspread), advice_for(users, allowed)
    about = {"users": users, "at": None if window or schedule else at, "window": window}
    found = about | report_of(made, changes, advice)
    terminal.report(found, *_parts(made, changes, advice), as_json=as_json)
    if svg is not None:
        save(svg, chart(made))


def _plan_users(
    users: int, at: str, window: str | None, rate: Rate, round_trip: float
) -> tuple[DeparturePlan, list[float]]:
    """Return the plan, and when all would be due without a window."""
    if not 1 <= users <= MOST_USERS:
        raise BadInputError(f"--users {users:,}: give 1 to {MOST_USERS:,}")
    if window is None:
        due = due_times(users, _second_of_day(parse_time(at)))
        return plan_departures(due, rate, round_trip), due
    spread = parse_window(window)
    start = _second_of_day(spread.start)
    due = due_times(users, start, Spread(spread.seconds))
    return plan_departures(due, rate, round_trip), due_times(users, start)


def _times_of_file(place: str, at: str, zone: str, *, as_json: bool) -> tuple[int, list[float]]:
    """Return the number of chats in a file, and the seconds of tomorrow at which its reminders are due."""
    clock = Clock()
    today = dt.datetime.fromtimestamp(clock.now(), time_zone(zone)).date()
    start, end = (
        instant(dt.datetime.combine(today + dt.timedelta(days=days), dt.time()), zone) for days in (1, 2)
    )
    defaults = {"zone": zone, "at": parse_time(at), "every": "day"}
    times: list[float] = []
    chats: set[ChatId] = set()
    bad: list[BadLine] = []
    with open_audience(place) as source, phase(clock, "Reading", source.size, as_json=as_json) as show:
        for line in rows(source, ("chat_id",)):
            if isinstance(line, BadLine):
                bad.append(line)
                continue
            try:
                new = reminder_from_row(line.row, defaults, bot=BotId(0), now=start - 1)
            except BadInputError as error:
                bad.append(BadLine(line.number, str(error)))
                continue
            chats.add(new.chat_id)
            times += (due - start for due in scheduled_times(new, line.number, start - 1, end))
            show(source.read, f"{line.number:,} lines")
        if bad:
            shown = "; ".join(f"line {one.number}: {one.reason}" for one in bad[:MOST_BAD_LINES])
            more = f" (bad lines: {len(bad):,})" if len(bad) > 1 else ""
            raise BadInputError(f"{source.name}, {shown}{more}")
    if not times:
        raise BadInputError(f"{place} has no reminder that is due tomorrow in {zone}")
    return len(chats), times


def _round_trip(text: str) -> float:
    match = _MILLISECONDS.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"--round-trip: {text!r} is not a number of milliseconds: write it as 50ms")
    return int(match[1]) / 1_000


def _second_of_day(time: dt.time) -> float:
    return float(time.hour * 3_600 + time.minute * 60 + time.second)


def clock_text(second: float) -> str:
    """Return a second of the day as HH:MM; after midnight it begins anew."""
    minutes = int(second // 60)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _day_text(second: float) -> str:
    """Return it with the days that have passed since the first: 00:28 +1 d."""
    days = int(second // DAY)
    return f"{clock_text(second)} +{days} d" if days else clock_text(second)


def report_of(plan: DeparturePlan, changes: Sequence[Alternative], advice: SizeAdvice) -> dict[str, Any]:
    """Build the report, with the words that all reports share."""
    minutes = plan.minutes()
    busiest = max(minutes, key=lambda minute: minute.due)
    return {
        "reminders": len(plan.due),
        "rate": str(plan.rate),
        "round_trip_ms": round(plan.round_trip * 1_000),
        "first_due_at": clock_text(plan.due[0]),
        "last_due_at": clock_text(plan.due[-1]),
        "last_leaves_at": clock_text(plan.leaves[-1]),
        "seconds": round(plan.seconds, 1),
        "avg_rps": round(len(plan.due) / max(1.0, plan.seconds), 2),
        "p50_ms": round(plan.wait_of(0.5) * 1_000),
        "p99_ms": round(plan.wait_of(0.99) * 1_000),
        "max_ms": round(plan.longest_wait * 1_000),
        "most_due": {"at": clock_text(busiest.start), "due": busiest.due},
        "most_waiting": max(minute.waiting for minute in minutes),
        "minutes": [
            {"at": clock_text(one.start), "due": one.due, "leave": one.leave, "waiting": one.waiting}
            for one in minutes
            if one.due or one.leave or one.waiting
        ],
        "changes": [_change_report(change) for change in changes],
        "advice": {
            "users": advice.users,
            "pool_size": advice.pool_size,
            "max_overflow": advice.max_overflow,
            "window_seconds": advised_window(advice, plan.rate, plan.round_trip),
            "switch_on": list(advice.switch_on),
            "not_yet": list(advice.not_yet),
        },
    }


def _change_report(change: Alternative) -> dict[str, Any]:
    found: dict[str, Any] = {
        "change": change.name,
        "seconds": round(change.seconds, 1),
        "max_ms": round(change.longest_wait * 1_000),
    }
    match change.name:
        case "window":
            found["window_seconds"] = change.window
        case "engagement":
            found |= {"window_seconds": change.window, "first_tenth_seconds": change.first_tenth}
        case "paid":
            found["stars"] = round(change.stars)
        case "second_bot":
            pass
        case _:
            assert_never(change.name)
    return found


def _parts(
    plan: DeparturePlan, changes: Sequence[Alternative], advice: SizeAdvice
) -> Iterator[RenderableType]:
    real = plan.rate.count / (plan.rate.seconds + plan.round_trip)
    yield (
        f"{len(plan.due):,} reminders from {clock_text(plan.due[0])} on, at {plan.rate} with a round trip of "
        f"{plan.round_trip * 1_000:.0f} ms: {real:.1f} a second"
    )
    yield _table(plan)
    last, half = _day_text(plan.leaves[-1]), _span(plan.wait_of(0.5))
    waits = f"Half of them wait up to {half}, the longest wait is {_span(plan.longest_wait)}."
    if plan.longest_wait < 1:
        waits = "Nobody waits for a second."
    yield f"The last one leaves at {last}, {_span(plan.seconds)} after the first was due. {waits}"
    yield ""
    yield "What would shorten it:" if changes else "Nobody waits for long: nothing needs to change."
    yield from (f"  - {_change_text(change, plan.due[0])}" for change in changes)
    yield ""
    yield _sizes(plan.rate, plan.round_trip)
    yield f"With about {advice.users:,} users, switch on:"
    yield from (f"  - {line}" for line in advice.switch_on)
    yield f"  - DB_POOL_SIZE={advice.pool_size}, DB_MAX_OVERFLOW={advice.max_overflow}"
    yield f"Not yet: {'; '.join(advice.not_yet)}."


def _span(seconds: float) -> str:
    if seconds < SECONDS_BELOW:
        return f"{max(1, seconds):.0f} s"
    if seconds < TENTHS_BELOW:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 60:.0f} min" if seconds < HOURS_FROM else f"{seconds / 3_600:.1f} h"


def _change_text(change: Alternative, first_due: float) -> str:
    match change.name:
        case "window":
            start = first_due - change.window / 2 if change.window >= CENTRED_FROM else first_due
            window = f"{clock_text(start)}-{clock_text(start + change.window)}"
            return (
                f"a window of {_span(change.window)} (spread={window}), which leaves a fifth of the rate for "
                f"replies: nobody waits longer than {_span(change.longest_wait)}"
            )
        case "engagement":
            return (
                "in it, the most engaged first (spread_order=engagement): the first tenth of the users has "
                f"it within {_span(change.first_tenth)}"
            )
        case "paid":
            return (
                f"paid broadcasts (allow_paid_broadcast=true): the last leaves after {_span(change.seconds)},"
                f" for about {change.stars:,.0f} Stars each time (0.1 for each message above 30 a second)"
            )
        case "second_bot":
            return f"a second bot for half of the users: the last leaves after {_span(change.seconds)}"
        case _:
            assert_never(change.name)


def _table(plan: DeparturePlan) -> Table:
    """The curve: a row for each minute, or for so many that all fit."""
    length = plan.leaves[-1] - plan.due[0]
    step = next((one for one in STEPS if length / 60 / one <= MOST_ROWS), STEPS[-1])
    found = plan.minutes(step * 60.0)
    queue, leaving = max(one.waiting for one in found), max(one.leave for one in found)
    shown, most = ("wait", queue) if queue > leaving else ("leave", leaving)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"{step} min from" if step > 1 else "minute", no_wrap=True)
    for name in ("due", "leave", "wait"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(shown, no_wrap=True)
    for one in found:
        bar = "█" * round(BAR * (one.waiting if shown == "wait" else one.leave) / most)
        table.add_row(_day_text(one.start), f"{one.due:,}", f"{one.leave:,}", f"{one.waiting:,}", bar)
    return table


def _sizes(rate: Rate, round_trip: float) -> Table:
    """Show the rate's meaning for 1,000, 10,000 and 100,000 reminders at once, and what goes with them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in ("users", "at once, the last after", "window with room", "pool"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in ADVICE:
        last = plan_departures([0.0] * one.users, rate, round_trip).seconds
        pool = f"{one.pool_size} + {one.max_overflow}"
        window = advised_window(one, rate, round_trip)
        shown = "more than a day" if window is None else _span(window) if window else "none"
        table.add_row(f"{one.users:,}", _span(last), shown, pool)
    return table


WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 880, 96, 356
LABELS = 8  # times below the chart, about


def chart(plan: DeparturePlan) -> str:
    """Return the curve as a self-contained SVG file: due, leaving and waiting in each minute."""
    minutes = plan.minutes()
    last = f"the last leaves at {clock_text(plan.leaves[-1])}"
    title = f"{len(plan.due):,} reminders at {plan.rate}: {last}"
    leaving, waiting = max(one.leave for one in minutes), max(one.waiting for one in minutes)
    shapes = [
        svg_text(LEFT, 36, title, kind="title"),
        svg_text(LEFT, 58, f"each minute; the longest wait is {_span(plan.longest_wait)}", kind="quiet"),
        svg_rect(LEFT, 72, 13, 13, "mode2"),
        svg_text(LEFT + 19, 83, f"leave, {leaving:,} at most"),
        svg_rect(LEFT + 200, 72, 13, 13, "mode1"),
        svg_text(LEFT + 219, 83, f"wait (on a scale of its own), {waiting:,} at most"),
        svg_line(LEFT, BOTTOM, RIGHT, BOTTOM, "grid"),
        *_bars(minutes, max(1, leaving), max(1, waiting)),
    ]
    description = "; ".join(
        f"{clock_text(one.start)}: {one.due} due, {one.leave} leave" for one in minutes[:60]
    )
    return svg_document(WIDTH, HEIGHT, title=title, description=description, shapes=shapes)


def _bars(minutes: Sequence[MinuteCount], leaving: int, waiting: int) -> Iterator[str]:
    room = (RIGHT - LEFT) / len(minutes)
    height = BOTTOM - TOP
    for number, one in enumerate(minutes):
        x = LEFT + number * room
        about = f"{clock_text(one.start)}: {one.due:,} due, {one.leave:,} leave, {one.waiting:,} wait"
        tall, behind = height * one.leave / leaving, height * one.waiting / waiting
        yield svg_rect(x, BOTTOM - behind, room, behind, "mode1", about=about)
        yield svg_rect(x + room * 0.15, BOTTOM - tall, room * 0.7, tall, "mode2", about=about)
        if number % max(1, round(len(minutes) / LABELS)) == 0:
            yield svg_text(x, BOTTOM + 20, clock_text(one.start), kind="small")
