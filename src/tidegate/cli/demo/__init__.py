"""`tidegate demo`: its options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson

app = typer.Typer(add_completion=False)

Seconds = Annotated[int, typer.Option(min=1, max=600, metavar="N", help="Stop after this many seconds.")]
People = Annotated[
    int, typer.Option(min=1, max=100_000, metavar="N", help="People that the broadcast goes to.")
]
Users = Annotated[
    int, typer.Option(min=1, max=2_000, metavar="N", help="People who order, and pay or cancel.")
]
Reminded = Annotated[int, typer.Option(min=1, max=1_000, metavar="N", help="People who have a habit.")]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed gives the same delays and people.")]
Picture = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw both bots as a chart into this file.")
]
Mode = Annotated[
    Literal["delta", "batch"],
    typer.Option(help="How the bot looks for payments: by changes, or 20 orders at a time."),
]


@app.callback(
    invoke_without_command=True,
    epilog="[b]Try it:[/b]  tidegate demo  ·  tidegate demo --seconds 20 --svg demo.svg  "
    "·  tidegate demo payment  ·  tidegate demo habits",
)
def demo(
    context: typer.Context,
    *,
    seconds: Seconds = 60,
    people: People = 1_000,
    seed: Seed = 0,
    svg: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Watch a naive bot and one with Tidegate do the same work side by side.

    Each has a simulated Telegram of its own, with Telegram's published limits, over real HTTP; each sends a
    broadcast and answers 20 people who write to it. Tidegate writes every message to disk first. All numbers
    are measured.
    """
    if (below := context.invoked_subcommand) is not None:
        _refuse_options(context, below)
        return
    from tidegate.cli.demo import comparison as side_by_side  # noqa: PLC0415  (slow to import)

    side_by_side.show(seconds=seconds, people=people, seed=seed, picture=svg, as_json=as_json)


@app.command(
    "payment",
    epilog="[b]Try it:[/b]  tidegate demo payment  ·  tidegate demo payment --users 60 --mode batch --json",
)
def demo_payment(
    *,
    users: Users = 300,
    seconds: Seconds = 300,
    mode: Mode = "delta",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Watch a bot that takes orders, waits for their payment and confirms it.

    The bot of examples/payment_bot, a simulated Telegram and a simulated NocoDB with the limits of the real
    ones, over real HTTP. People order, and pay or cancel; the bot sees it in NocoDB. Stops when all are done.
    Exits with 1 if a request was refused, or somebody was not told within 62 s of paying.
    """
    from tidegate.cli.demo import payment  # noqa: PLC0415  (slow to import)

    raise typer.Exit(payment.show(users=users, seconds=seconds, mode=mode, seed=seed, as_json=as_json))


@app.command(
    "habits",
    epilog="[b]Try it:[/b]  tidegate demo habits  ·  tidegate demo habits --users 50 --json",
)
def demo_habits(*, users: Reminded = 200, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Watch a bot that reminds everybody of a habit at the same moment.

    The bot of examples/habit_bot and a simulated Telegram with its published limits, over real HTTP. People
    of five time zones add a habit that is due for all of them at once; they press "done" when it comes, and
    get their streak. Exits with 1 if somebody was not reminded, or twice, if a request was refused, or if 1 %
    of the replies took more than a second. For a whole day with 100,000 users: tidegate simulate.
    """
    from tidegate.cli.demo import habits  # noqa: PLC0415  (slow to import)

    raise typer.Exit(habits.show(users=users, seed=seed, as_json=as_json))


def _refuse_options(context: typer.Context, below: str) -> None:
    """Raise for an option before the name of the subcommand: it would be ignored."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--json" if name == "as_json" else f"--{name}"
            raise typer.BadParameter(f"write it after {below}: tidegate demo {below} {option}")
