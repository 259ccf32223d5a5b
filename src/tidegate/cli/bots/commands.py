"""`tidegate bot`: which bots a store sends for. Only the options; the work is in the neighbours."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson, Store, Yes

app = typer.Typer(help="Say which bots a store sends for.")

Token = Annotated[
    str | None,
    typer.Argument(
        metavar="TOKEN",
        help="From @BotFather. - reads it from stdin; without it TELEGRAM_BOT_TOKEN is taken, or it asks.",
        show_default=False,
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url", metavar="URL", help="Of a Bot API server of your own; Telegram's if not given."
    ),
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not ask Telegram whether the token is good.")]
Number = Annotated[str, typer.Argument(metavar="ID", help="The bot's number, as bot list shows it.")]


@app.callback(invoke_without_command=True)
def bot(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="[b]Try it:[/b]  tidegate bot add - < token.txt  ·  TELEGRAM_BOT_TOKEN=… tidegate bot add"
)
def add(
    token: Token = None,
    *,
    api_url: ApiUrl = None,
    no_check: NoCheck = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Register a bot, or give it a new token. The store keeps the token encrypted.

    Asks Telegram first whether the token is good, and registers nothing if it is not. The key is that of
    TIDEGATE_KEY, or of a file beside the store that is made now: a backup of one is of no use without the
    other.
    """
    from tidegate.cli.bots import add as bot_add  # noqa: PLC0415  (keeps --help fast)

    bot_add.add(store, token, api_url=api_url, check=not no_check, as_json=as_json)


@app.command("list")
def list_(*, store: Store = None, as_json: AsJson = False) -> None:
    """List the bots, with how much of theirs waits or is dead. Tokens are never shown."""
    from tidegate.cli.bots import register as bot_register  # noqa: PLC0415  (keeps --help fast)

    bot_register.show_list(store, as_json=as_json)


@app.command()
def remove(number: Number, *, yes: Yes = False, store: Store = None, as_json: AsJson = False) -> None:
    """Forget a bot and its token. Asks first while messages of its own wait: they could not be sent."""
    from tidegate.cli.bots import register as bot_register  # noqa: PLC0415  (keeps --help fast)

    bot_register.remove(store, number, yes=yes, as_json=as_json)
