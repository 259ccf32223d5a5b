"""Options that several commands have, so that they read the same everywhere. Light: --help reads this."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for programs.")]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="FILE", help="The store; TIDEGATE_STORE or tidegate.db if not given."),
]
BotOption = Annotated[
    int | None, typer.Option("--bot", metavar="N", help="The bot's number; not needed where there is one.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
