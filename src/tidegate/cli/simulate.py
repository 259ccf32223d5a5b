"""`tidegate simulate`: a day of a habit bot with many users, in virtual time."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.options import AsJson

app = typer.Typer(add_completion=False)

Users = Annotated[int, typer.Option(metavar="N", help="People who use the bot.")]
Hours = Annotated[float, typer.Option(metavar="HOURS", help="Length of the run, in virtual time.")]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed gives the same run.")]
FaultsText = Annotated[
    str,
    typer.Option(
        "--faults",
        metavar="LEVEL|NAME=SHARE,…",
        help="none, some (0.1 % of the requests for each kind), many (1 %); or server_error, lost_request, "
        "lost_answer, silent, malformed with shares: lost_answer=0.02,silent.",
    ),
]
FLAWS: Final = {
    "lost": "something did not arrive",
    "doubled": "something arrived twice",
    "refused": "429s came",
    "out_of_order": "answers came out of order",
    "dead": "messages died",
    "parked": "messages were parked",
    "expired": "messages expired",
    "slow": "99 % of the answers took more than 1 s, or a reminder was more than 15 min late",
    "nothing_sent": "nothing arrived, so nothing was shown: play more hours or users, or fewer faults",
}


@app.command(
    "simulate",
    epilog="[b]Try it:[/b]  tidegate simulate --users 10000  ·  tidegate simulate --users 100000 --seed 7 "
    "--json  ·  tidegate simulate --users 2000 --faults many",
)
def simulate(
    *,
    users: Users = 10_000,
    hours: Hours = 24,
    faults: FaultsText = "none",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate a day of a habit bot, and measure what its users get.

    The users live in 12 time zones and have one to three daily reminders: the first around 09:00, spread
    over an hour, or for a fifth of them at 09:00 sharp. They press "done" or "later", ask for statistics, or
    block the bot. The scheduler, the outbox and the pacing are real, with the store in memory; Telegram is
    simulated, with its published limits and 5 to 40 ms each way.

    It runs in virtual time: 100,000 users take a minute or two, and 1 GB of memory. Exits with 1 if a target
    was missed: nothing lost, doubled or refused; without faults, 99 % of the answers within 1 s, and no
    reminder more than 15 minutes late. With faults, a message whose answer was lost is sent again, and may
    so arrive twice.
    """
    from tidegate.cli import terminal  # noqa: PLC0415  (slow to import)
    from tidegate.cli.sim.options import read  # noqa: PLC0415
    from tidegate.sim.faults import Faults  # noqa: PLC0415
    from tidegate.sim.habits import HabitScenario  # noqa: PLC0415

    chosen = read("--faults", Faults.parse, faults)
    report = _play(HabitScenario(users=users, hours=hours, seed=seed, faults=chosen))
    terminal.report(report, *_shown(report), as_json=as_json)
    if report["interrupted"]:
        terminal.note("tidegate: stopped by Ctrl-C: the figures are those of the part that was played")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if report["passed"] else FAILED)


def _play(scenario: Any) -> dict[str, Any]:  # noqa: ANN401  (slow to import)
    from tidegate.cli.stress.playback import play_bar, quiet, stopping  # noqa: PLC0415
    from tidegate.sim.habits import simulate_habits  # noqa: PLC0415

    habits = sum(1 for _ in scenario.habits())
    length = scenario.hours * 3600
    with stopping() as stop, quiet(), play_bar() as show:

        def tick(added: int, played: float) -> bool:
            show("adding reminders", added, habits, f"{added:,} of {habits:,}")
            if played:
                show(f"{scenario.users:,} users", played, length, f"{_clock(played)} of {_clock(length)} h")
            return not stop.asked

        return simulate_habits(scenario, tick).as_dict()


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d}"


def _shown(report: Mapping[str, Any]) -> list[Any]:
    from rich import box  # noqa: PLC0415  (slow to import)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    title = f"{report['hours']:g} h of a habit bot, measured at Telegram's end (seed {report['seed']})"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    for name, value in _rows(report):
        table.add_row(name, value)
    return [table] if report["interrupted"] else [table, Text(_verdict(report))]


def _rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    from tidegate.cli.progress import sparkline  # noqa: PLC0415  (slow to import)

    per_hour = report["per_hour"]
    return [
        ("users, their habits", f"{report['users']:,}, {report['habits']:,}"),
        ("messages in all", f"{report['messages']:,}"),
        ("in each hour", sparkline(per_hour, max(per_hour, default=0))),
        ("reminders", f"{report['reminders']:,}"),
        ("late: median, 99 %, most", _times(report, "late_p50_ms", "late_p99_ms", "late_max_ms")),
        (
            "pressed done, later; asked; blocked",
            ", ".join(f"{report[name]:,}" for name in ("pressed", "snoozed", "asked", "blocked")),
        ),
        ("an answer took: median, 99 %, most", _times(report, "p50_ms", "p99_ms", "max_ms")),
        ("accepted, delivered", f"{report['accepted']:,}, {report['delivered']:,}"),
        ("dead (bot blocked), expired, waiting", _counts(report, "dead", "expired", "waiting")),
        ("lost, doubled, out of order", _counts(report, "lost", "doubled", "out_of_order")),
        ("requests, refused (429)", _counts(report, "requests", "refused")),
        ("most messages in a second (30 allowed)", f"{report['peak_messages']}"),
        ("it took", f"{report['seconds']:,.0f} s"),
    ]


def _counts(report: Mapping[str, Any], *names: str) -> str:
    return ", ".join(f"{report[name]:,}" for name in names)


def _times(report: Mapping[str, Any], *names: str) -> str:
    return ", ".join(_duration(report[name]) for name in names)


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"  # noqa: PLR2004


def _verdict(report: Mapping[str, Any]) -> str:
    if report["flaws"]:
        return "failed: " + "; ".join(FLAWS[flaw] for flaw in report["flaws"])
    if report["faults"]:
        return "passed: nothing lost or refused; what came twice was sent again after a lost answer"
    return "passed: nothing lost, doubled, refused, out of order or too late"
