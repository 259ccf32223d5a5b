"""`tidegate demo`: only the options; the work is in the neighbours."""

from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson

app = typer.Typer()

Seconds = Annotated[int, typer.Option(min=1, max=600, metavar="N", help="Stops by itself after so long.")]
People = Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Who the broadcast goes to.")]
Users = Annotated[int, typer.Option(min=1, max=2_000, metavar="N", help="Who order, and pay or cancel.")]
Seed = Annotated[int, typer.Option(metavar="N", help="The same seed draws the same delays and people.")]
Mode = Annotated[
    Literal["delta", "batch"],
    typer.Option(help="How payments are looked for: what changed, or 20 at a time."),
]


@app.callback(
    invoke_without_command=True,
    epilog="[b]Try it:[/b]  tidegate demo  ·  tidegate demo --seconds 20  ·  tidegate demo payment",
)
def demo(
    context: typer.Context,
    *,
    seconds: Seconds = 60,
    people: People = 1_000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Watch a naive bot and one with Tidegate do the same work side by side.

    Each has a simulated Telegram of its own, with Telegram's published limits, over real HTTP; each sends a
    broadcast and answers 20 people who write to it. Tidegate writes every message to disk first. Nothing is
    staged: what is shown is measured.
    """
    if (below := context.invoked_subcommand) is not None:
        _refuse_options(context, below)
        return
    from tidegate.cli.demo import comparison as side_by_side  # noqa: PLC0415  (keeps --help fast)

    side_by_side.show(seconds=seconds, people=people, seed=seed, as_json=as_json)


@app.command(
    epilog="[b]Try it:[/b]  tidegate demo payment  ·  tidegate demo payment --users 60 --mode batch --json"
)
def payment(
    *,
    users: Users = 300,
    seconds: Seconds = 300,
    mode: Mode = "delta",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Watch a bot that takes orders, waits for their payment and confirms it.

    The bot of examples/payment_bot, a simulated Telegram and a simulated NocoDB with the limits of the real
    ones, over real HTTP. People come, order, and pay or cancel; the bot sees it in NocoDB. Ends when all are
    done. Ends with 1 if somebody was refused, or was not told within 60 s of paying.
    """
    from tidegate.cli.demo import payment  # noqa: PLC0415  (keeps --help fast)

    raise typer.Exit(payment.show(users=users, seconds=seconds, mode=mode, seed=seed, as_json=as_json))


def _refuse_options(context: typer.Context, below: str) -> None:
    """An option before the name of the other demo would be ignored."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--json" if name == "as_json" else f"--{name}"
            raise typer.BadParameter(f"write it behind {below}: tidegate demo {below} {option}")
