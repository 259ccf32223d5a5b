"""`tidegate stress`: its options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson, command_group

app = command_group("Put polling under simulated load and measure it.")

Users = Annotated[
    int | None,
    typer.Option(metavar="N", show_default="300", help="People who wait to be told that their payment came."),
]
Duration = Annotated[float, typer.Option(metavar="SECONDS", help="Length of the scenario.")]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Everybody should be told within this time; per-user asks this often."
    ),
]
ModeOption = Annotated[
    Literal["per-user", "paced", "batch", "delta", "all"],
    typer.Option(help="How the bot polls; all: every mode, in one table."),
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="Users per request in batch mode; default: computed.")
]
Scenarios = Annotated[
    bool,
    typer.Option("--scenarios", help="100, 300, 500, 1,000 and 2,000 users instead of --users."),
]
RealTime = Annotated[
    bool,
    typer.Option("--real-time", help="Use the real clock and real HTTP: takes as long as --duration."),
]
Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the result as a chart into this file.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed gives the same payments and delays.")]
Crowds = Annotated[
    list[int] | None,
    typer.Option("--users", metavar="N", help="Number of people restored; repeatable. Default: 45 to 2,000."),
]
GroupSize = Annotated[int, typer.Option("--group", metavar="N", help="People restored at a time.")]
Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", help="Seconds from one group to the next.")
]


@app.command(
    "polling",
    epilog="[b]Try it:[/b]  tidegate stress polling  ·  tidegate stress polling --scenarios --svg polling.svg"
    "  ·  tidegate stress polling --mode delta --users 2000 --json",
)
def stress_polling(
    *,
    users: Users = None,
    duration: Duration = 300,
    mode: ModeOption = "all",
    interval: Interval = 60,
    batch_size: BatchSize = None,
    scenarios: Scenarios = False,
    real_time: RealTime = False,
    svg: Svg = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare four ways to poll NocoDB for the payments that people wait for.

    [b]per-user[/b] asks for each person every 60 s without a limiter, as most bots do.
    [b]paced[/b] is Tidegate asking for each person, within the limit.
    [b]batch[/b] asks for many in one request.
    [b]delta[/b] asks what has changed, for everybody in one request; the more people, the more often.

    NocoDB is simulated: 5 requests a second, then closed for 30 s; round trips of 50 to 250 ms. Half of the
    people pay, at random times. All are restored at the start, as after a restart.

    Batch polls a little more often than the interval, so that the last answer of a cycle comes in time.

    It runs in virtual time: 300 s take seconds, [cyan]--scenarios[/cyan] less than a minute. Exits with 1 if
    one of Tidegate's modes missed its target: no 429; batch and delta: everybody told within the interval,
    and on average below 1 request a second (delta: at most half of the limit, and no more requests than
    asking for each).
    """
    from tidegate.cli.stress import polling as driver  # noqa: PLC0415  (slow to import)
    from tidegate.sim.polling import PollingScenario  # noqa: PLC0415

    driver.check(users=users, scenarios=scenarios, mode=mode, batch_size=batch_size)
    people = 300 if users is None else users
    scenario = PollingScenario(
        users=people, duration=duration, interval=interval, batch_size=batch_size, seed=seed
    )
    raise typer.Exit(
        driver.stress(
            driver.crowds(scenario) if scenarios else [scenario],
            driver.modes(mode),
            real_time=real_time,
            svg=svg,
            as_json=as_json,
        )
    )


@app.command(
    "restore",
    epilog="[b]Try it:[/b]  tidegate stress restore  ·  tidegate stress restore --users 300 --group 20",
)
def stress_restore(
    *,
    users: Crowds = None,
    group: GroupSize = 10,
    every: Every = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a restart while many people wait: the requests in each second, and how many are refused.

    Compares a bot that asks for everybody at once with Tidegate, which restores in groups and stays within 5
    requests a second. It runs in virtual time, for some seconds. Exits with 1 if Tidegate was refused.
    """
    from tidegate.cli.stress import restore as driver  # noqa: PLC0415  (slow to import)

    raise typer.Exit(
        driver.stress(users or driver.CROWDS, group=group, every=every, seed=seed, as_json=as_json)
    )
