"""`tidegate webhook`: where a bot's updates go. Only the options; the work is in the neighbours."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson, Store, Yes, a_bots_number

app = typer.Typer(help="Say where Telegram sends a bot's updates.")

Base = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="Where the bot can be reached, https://bots.example.org; /webhook/telegram/ID is added.",
    ),
]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="ID", callback=a_bots_number, help="This bot only; all if not given."),
]
Connections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        min=1,
        max=100_000,
        metavar="N",
        help="Updates posted at once; Telegram's usual: 40.",
    ),
]
Allowed = Annotated[
    str | None,
    typer.Option(
        "--allowed-updates",
        metavar="A,B",
        help='Only these kinds: message,callback_query. "" for the usual ones; as it was if not given.',
    ),
]
DropPending = Annotated[
    bool, typer.Option("--drop-pending", help="Throw away what waits at Telegram. Asks first.")
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="Of a Bot API server of your own, for TELEGRAM_BOT_TOKEN; registered bots have theirs.",
    ),
]


@app.callback(invoke_without_command=True)
def webhook(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    "set",
    epilog="[b]Try it:[/b]  tidegate webhook set https://bots.example.org  ·  tidegate webhook info",
)
def set_(
    address: Base,
    *,
    bot: OfBot = None,
    max_connections: Connections = None,
    allowed_updates: Allowed = None,
    drop_pending: DropPending = False,
    api_url: ApiUrl = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let Telegram post updates to ADDRESS, from now on, instead of waiting for getUpdates.

    For the bots that are registered in the store, and for that of TELEGRAM_BOT_TOKEN. The secret that comes
    with each update is made of the bot's token: every process knows it, and nothing has to be kept. After a
    token was changed, set the webhook again.
    """
    from tidegate.cli.webhook import change  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.webhook.bots import Whose  # noqa: PLC0415  (likewise)

    wish = change.Wish(
        max_connections=max_connections, allowed_updates=allowed_updates, drop_pending=drop_pending
    )
    whose = Whose(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(change.set_webhooks(whose, address, wish, yes=yes, as_json=as_json))


@app.command(epilog="[b]Try it:[/b]  tidegate webhook info  ·  tidegate webhook info --bot 42 --json")
def info(*, bot: OfBot = None, api_url: ApiUrl = None, store: Store = None, as_json: AsJson = False) -> None:
    """Ask Telegram where updates go, how many wait, and what went wrong last; say what to do.

    Ends with 1 if something is wrong.
    """
    from tidegate.cli.webhook import info as look  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.webhook.bots import Whose  # noqa: PLC0415  (likewise)

    raise typer.Exit(look.show(Whose(store=store, bot=bot, api_url=api_url), as_json=as_json))


@app.command(epilog="[b]Try it:[/b]  tidegate webhook delete --bot 42")
def delete(
    *,
    bot: OfBot = None,
    drop_pending: DropPending = False,
    api_url: ApiUrl = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Go back to long polling. What waits at Telegram stays there for whoever polls, unless it is dropped."""
    from tidegate.cli.webhook import change  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.webhook.bots import Whose  # noqa: PLC0415  (likewise)

    whose = Whose(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(change.delete_webhooks(whose, drop_pending=drop_pending, yes=yes, as_json=as_json))
