"""`tidegate queue`: what can be asked of what waits. Only the options; the work is in the neighbours."""

from enum import StrEnum
from typing import Annotated

import typer

from tidegate.cli.options import AsJson, Store, Yes, a_bots_number

app = typer.Typer(help="Look at what waits, hold it, let it go, take it out.")

# The states of a message (tidegate.model), which would be slow to import.
StateName = StrEnum("StateName", "queued retry sending parked dead delivered expired cancelled replaced any")
Id = Annotated[str, typer.Argument(metavar="ID", help="As queue list shows it.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="As queue list shows them.")]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="Of this bot only, by its number."),
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Of this chat only: a number or @name.")
]
States = Annotated[
    list[StateName] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="queued, retry, sending, parked, dead, delivered, expired, cancelled, replaced or any; "
        "may be given again. Not given: what waits or is being sent.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="The oldest so many.")]


@app.callback(invoke_without_command=True)
def queue(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Say how many messages are where, who sends them, and what is paused."""
    from tidegate.cli.queue import stats as queue_stats  # noqa: PLC0415  (keeps --help fast)

    queue_stats.show(store, as_json=as_json)


@app.command("list", epilog="[b]Try it:[/b]  tidegate queue list --chat 1001 --state any")
def list_(
    *,
    bot: OfBot = None,
    chat: OfChat = None,
    state: States = None,
    limit: Limit = 20,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List messages, oldest first."""
    from tidegate.cli.queue import looks as queue_looks  # noqa: PLC0415  (keeps --help fast)

    queue_looks.show_list(store, bot=bot, chat=chat, states=state or [], limit=limit, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message, its text included."""
    from tidegate.cli.queue import looks as queue_looks  # noqa: PLC0415  (keeps --help fast)

    queue_looks.show_one(store, ticket, as_json=as_json)


@app.command()
def why(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Say what a message waits for, and when it should leave."""
    from tidegate.cli.queue import why as queue_why  # noqa: PLC0415  (keeps --help fast)

    queue_why.show(store, ticket, as_json=as_json)


@app.command()
def pause(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Hold what is queued: of every bot, of one, or of one chat. It stays so after a restart.

    What is being sent ends as it would. Messages are still accepted, and direct calls go on.
    """
    from tidegate.cli.queue import holds as queue_holds  # noqa: PLC0415  (keeps --help fast)

    queue_holds.hold(store, bot=bot, chat=chat, paused=True, as_json=as_json)


@app.command()
def resume(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Let go again what was paused, by the same options. A bot's pause and a chat's are two."""
    from tidegate.cli.queue import holds as queue_holds  # noqa: PLC0415  (keeps --help fast)

    queue_holds.hold(store, bot=bot, chat=chat, paused=False, as_json=as_json)


@app.command()
def cancel(
    ids: Ids = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that waits.")] = False,
    bot: OfBot = None,
    chat: OfChat = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take messages out that wait: by their ids, of a chat, of a bot, or all.

    What is being sent cannot be taken back. Ends with 1 if a message that was named no longer waited.
    """
    from tidegate.cli.queue import cancel as queue_cancel  # noqa: PLC0415  (keeps --help fast)

    which = queue_cancel.Which(ids=ids or [], everything=everything, bot=bot, chat=chat)
    raise typer.Exit(queue_cancel.cancel(store, which, yes=yes, as_json=as_json))
