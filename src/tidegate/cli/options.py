"""Options that several commands have, so that they read the same everywhere. Light: --help reads this."""

from typing import Annotated

import typer

LARGEST_BOT = 2**53  # Telegram promises 52 bits


def a_bots_number(number: int | None) -> int | None:
    """As a callback: a range would be shown in --help, with all its digits."""
    if number is not None and not 0 < number <= LARGEST_BOT:
        raise typer.BadParameter("that is no bot's number: look with tidegate bot list")
    return number


AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for programs.")]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="FILE", help="The store; TIDEGATE_STORE or tidegate.db if not given."),
]
BotOption = Annotated[
    int | None,
    typer.Option(
        "--bot",
        metavar="N",
        callback=a_bots_number,
        help="The bot's number; not needed where there is one.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
