"""`tidegate dlq`: what can be asked of dead letters. Only the options; the work is in the neighbours."""

from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.queue.commands import Id, Ids, Limit, OfBot, OfChat

app = typer.Typer(help="Look at dead letters, send them again, or drop them.")

Reason = Annotated[
    str | None, typer.Option(metavar="WORD", help="That died of this: blocked, bad_request, attempts …")
]
OlderThan = Annotated[
    str | None, typer.Option(metavar="DURATION", help="That ended longer ago: 90s, 30m, 2h, 7d.")
]
OneState = Annotated[
    Literal["dead", "parked"] | None,
    typer.Option("--state", help="Only these. parked: the outcome is unknown."),
]
All = Annotated[bool, typer.Option("--all", help="All that are dead; parked ones only with --state parked.")]


@app.callback(invoke_without_command=True)
def dlq(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list", epilog="[b]Try it:[/b]  tidegate dlq list --reason blocked --older-than 2h")
def list_(
    *,
    bot: OfBot = None,
    chat: OfChat = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    state: OneState = None,
    limit: Limit = 20,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List dead and parked messages, oldest first."""
    from tidegate.cli.letters import act as letters  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.letters.choice import Filter  # noqa: PLC0415  (likewise)

    chosen = Filter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    letters.show_list(store, chosen, limit=limit, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message: why it died, and what Telegram said."""
    from tidegate.cli.queue import looks as queue_looks  # noqa: PLC0415  (keeps --help fast)

    queue_looks.show_one(store, ticket, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate dlq replay --reason attempts --older-than 2h")
def replay(
    ids: Ids = None,
    *,
    everything: All = False,
    bot: OfBot = None,
    chat: OfChat = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    state: OneState = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Queue dead letters anew, as if put now: by their ids, by a filter, or all.

    Parked messages may have been delivered already: they are replayed only if named by id or by
    --state parked. Asks before it replays more than 100.
    """
    from tidegate.cli.letters import act as letters  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.letters.choice import Filter, Which  # noqa: PLC0415  (likewise)

    chosen = Filter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    which = Which(ids=ids or [], everything=everything, chosen=chosen)
    letters.replay(store, which, yes=yes, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate dlq drop --reason blocked --older-than 30d")
def drop(
    ids: Ids = None,
    *,
    everything: All = False,
    bot: OfBot = None,
    chat: OfChat = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    state: OneState = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Destroy dead letters: by their ids, by a filter, or all. Asks first.

    Parked messages are dropped only if named by id or by --state parked.
    """
    from tidegate.cli.letters import act as letters  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.letters.choice import Filter, Which  # noqa: PLC0415  (likewise)

    chosen = Filter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    which = Which(ids=ids or [], everything=everything, chosen=chosen)
    letters.drop(store, which, yes=yes, as_json=as_json)
