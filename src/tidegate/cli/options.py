"""Options that several commands share, so that they read the same everywhere."""

from typing import Annotated

import typer

LARGEST_BOT = 2**53  # Telegram promises 52 bits


def command_group(text: str) -> typer.Typer:
    """A command that has subcommands. Called alone, it prints its help."""
    app = typer.Typer(help=text, add_completion=False)

    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def a_bots_number(number: int | None) -> int | None:
    """Check a bot's number, as a callback: a range would be shown in --help with all its digits."""
    if number is not None and not 0 < number <= LARGEST_BOT:
        raise typer.BadParameter("not a bot's number: see tidegate bot list")
    return number


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, for programs.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="A file, or redis://…; default: TIDEGATE_STORE, REDIS_URL, or tidegate.db.",
    ),
]
BotOption = Annotated[
    int | None,
    typer.Option(
        "--bot", metavar="N", callback=a_bots_number, help="The bot's number, if there are several."
    ),
]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="Only this bot, by its number."),
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Only this chat: a number or @name.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65_535,
        metavar="PORT",
        help="Serve /healthz, /readyz and /metrics; 0: a free port.",
    ),
]
HealthHost = Annotated[
    str, typer.Option("--health-host", metavar="HOST", help="The address of --health-port.")
]
