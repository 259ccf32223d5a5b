"""`tidegate stress`: what can be put under load. Only the options; the work is in the neighbours."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson

app = typer.Typer(help="Put a part under load and measure it: nothing real is asked.")

Users = Annotated[
    int | None,
    typer.Option(metavar="N", show_default="300", help="People who wait to be told that their payment came."),
]
Duration = Annotated[float, typer.Option(metavar="SECONDS", help="How long it is played.")]
Interval = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Everybody is to be told within so long; a per-user bot asks so often."
    ),
]
ModeOption = Annotated[
    Literal["per-user", "paced", "batch", "delta", "all"],
    typer.Option(help="Which bot polls; all: each in its turn, in one table."),
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="Users in a request of batch mode; chosen if not given.")
]
Scenarios = Annotated[
    bool,
    typer.Option("--scenarios", help="100, 300, 500, 1,000 and 2,000 users instead of --users."),
]
RealTime = Annotated[
    bool,
    typer.Option("--real-time", help="By the real clock over real HTTP: takes as long as --duration says."),
]
Svg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw the result as a chart into this file.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed draws the same payments and delays.")]
Crowds = Annotated[
    list[int] | None,
    typer.Option("--users", metavar="N", help="So many are restored; repeatable. 45 … 2,000 if not given."),
]
GroupSize = Annotated[int, typer.Option("--group", metavar="N", help="Restored at a time.")]
Every = Annotated[float, typer.Option("--every", metavar="SECONDS", help="From one group to the next.")]


@app.callback(invoke_without_command=True)
def stress(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="[b]Try it:[/b]  tidegate stress polling  ·  tidegate stress polling --scenarios --svg polling.svg"
    "  ·  tidegate stress polling --mode delta --users 2000 --json"
)
def polling(
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
    """People wait for a payment, a bot polls NocoDB for it: four ways, side by side.

    [b]per-user[/b] asks for each person every 60 s, without a limiter: most bots are written so.
    [b]paced[/b] is Tidegate asking for each person, within the limit.
    [b]batch[/b] asks for many in one request.
    [b]delta[/b] asks what has changed, for everybody at once.

    NocoDB is simulated: 5 requests a second, then 30 s shut; 50 to 250 ms there and back. Half of the people
    pay, at random times. All are restored at the start, as after a restart.

    Batch looks a little more often than the interval, so that the last answer of a cycle comes in time.

    In virtual time: 300 s take seconds, [cyan]--scenarios[/cyan] less than a minute. Ends with 1 if one of
    Tidegate's modes missed its target: no 429; batch and delta: everybody told within the interval, and on
    average below 1 request a second (delta: at most half of the limit).
    """
    from tidegate.cli.stress import polling as driver  # noqa: PLC0415  (keeps --help fast)
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
    epilog="[b]Try it:[/b]  tidegate stress restore  ·  tidegate stress restore --users 300 --group 20"
)
def restore(
    *,
    users: Crowds = None,
    group: GroupSize = 10,
    every: Every = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """A bot starts again while many wait: how many requests come in each second, and who is refused.

    Beside each other: a bot that asks for everybody at once, and Tidegate, which restores groups and keeps
    within 5 requests a second. In virtual time, some seconds. Ends with 1 if Tidegate was refused.
    """
    from tidegate.cli.stress import restore as driver  # noqa: PLC0415  (keeps --help fast)

    raise typer.Exit(
        driver.stress(users or driver.CROWDS, group=group, every=every, seed=seed, as_json=as_json)
    )
