"""`tidegate inbox`: what can be asked of what arrived. Only the options; the work is in the neighbours."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson, Store, Yes, a_bots_number

app = typer.Typer()

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="As tidegate inbox shows them: an update_id, the id of an event."),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="As tidegate inbox shows it.")]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="Of this bot only, by its number."),
]
OfHook = Annotated[
    str | None, typer.Option("--hook", metavar="NAME", help="Of this hook only, such as payments.")
]
All = Annotated[bool, typer.Option("--all", help="All that are parked; with --bot or --hook, all of that.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="The newest so many.")]

NEWEST = 20


@app.callback(
    invoke_without_command=True,
    epilog="[b]Try it:[/b]  tidegate inbox --bot 42  ·  tidegate inbox show 815",
)
def inbox(
    context: typer.Context,
    *,
    bot: OfBot = None,
    hook: OfHook = None,
    limit: Limit = NEWEST,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """See which updates and events could not be handled, and why; handle them again, or drop them.

    Alone, it says how many wait or are being handled, and lists those that are parked. An update is parked
    when its handler raised an error, took too long, or killed its process again and again. It is kept, with
    the reason, until you replay or drop it; others of its chat go on. The bot may run meanwhile.
    """
    if context.invoked_subcommand is None:
        list_(bot=bot, hook=hook, limit=limit, store=store, as_json=as_json)
    elif (bot, hook, limit, store, as_json) != (None, None, NEWEST, None, False):
        raise typer.BadParameter(f"options belong behind {context.invoked_subcommand}")


@app.command("list", epilog="[b]Try it:[/b]  tidegate inbox list --hook payments --limit 100")
def list_(
    *,
    bot: OfBot = None,
    hook: OfHook = None,
    limit: Limit = NEWEST,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Say how many wait or are being handled, and list those that are parked: as tidegate inbox alone."""
    from tidegate.cli.inbox import looks as inbox_looks  # noqa: PLC0415  (keeps --help fast)

    inbox_looks.show(store, bot=bot, hook=hook, limit=limit, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate inbox show 815  ·  tidegate inbox show evt_1 --hook payments")
def show(
    key: Key, *, bot: OfBot = None, hook: OfHook = None, store: Store = None, as_json: AsJson = False
) -> None:
    """Show everything known of a parked one: why and when it was given up, its chat, its body in full."""
    from tidegate.cli.inbox import looks as inbox_looks  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.inbox.choice import Which  # noqa: PLC0415  (likewise)

    inbox_looks.show_one(store, Which([key], bot=bot, hook=hook), as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate inbox replay 815 816  ·  tidegate inbox replay --all --bot 42")
def replay(
    keys: Keys = None,
    *,
    everything: All = False,
    bot: OfBot = None,
    hook: OfHook = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Handle parked ones again, behind whatever waits in their chats: by their keys, or all.

    A bot that runs takes them up within a second. What a handler had sent through Tidegate before it failed
    is not sent again. Asks before it replays more than 100.
    """
    from tidegate.cli.inbox import act as parked  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.inbox.choice import Which  # noqa: PLC0415  (likewise)

    parked.replay(store, Which(keys or [], everything, bot, hook), yes=yes, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate inbox drop 815  ·  tidegate inbox drop --all --hook payments")
def drop(
    keys: Keys = None,
    *,
    everything: All = False,
    bot: OfBot = None,
    hook: OfHook = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Forget parked ones for good: by their keys, or all. Asks first."""
    from tidegate.cli.inbox import act as parked  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.inbox.choice import Which  # noqa: PLC0415  (likewise)

    parked.drop(store, Which(keys or [], everything, bot, hook), yes=yes, as_json=as_json)
