"""`tidegate dlq`: list dead letters, send them again, or drop them."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import typer

from tidegate.cli import terminal
from tidegate.cli.messages import LETTERS, Selection, amount, bot_of, chat_of, counted, find_records
from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.progress import Act, progress_bar, work_off, work_through
from tidegate.cli.queue import Id, Ids, Limit, OfBot, OfChat, list_records
from tidegate.cli.store import using
from tidegate.cli.terminal import confirm
from tidegate.cli.times import duration
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Record, State
from tidegate.outbox.port import Outbox

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
    chosen = LetterFilter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    list_letters(store, chosen, limit=limit, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message: why it died, and what Telegram said."""
    from tidegate.cli import queue as queue_looks  # noqa: PLC0415  (keeps --help fast)

    queue_looks.show_message(store, ticket, as_json=as_json)


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
    chosen = LetterFilter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    which = LetterChoice(ids=ids or [], everything=everything, chosen=chosen)
    replay_letters(store, which, yes=yes, as_json=as_json)


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
    chosen = LetterFilter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    which = LetterChoice(ids=ids or [], everything=everything, chosen=chosen)
    drop_letters(store, which, yes=yes, as_json=as_json)


class LetterFilter(NamedTuple):
    """What was written on the command line."""

    bot: int | None = None
    chat: str | None = None
    reason: str | None = None
    older_than: str | None = None
    state: Literal["dead", "parked"] | None = None


class LetterChoice(NamedTuple):
    """Likewise."""

    ids: Sequence[str]
    everything: bool
    chosen: LetterFilter


class ChosenLetters(NamedTuple):
    """Either some were named, or all of `wanted` are meant. `parked`: some of them are."""

    named: list[Record]
    wanted: Selection
    size: int
    parked: bool


async def choose(outbox: Outbox, which: LetterChoice, now: float) -> ChosenLetters:
    """Raises BadInputError for what is not known, or is no letter. Parked ones are meant if that is said."""
    check(which)
    wanted = selection(which.chosen, now, states=frozenset({State.DEAD}))
    if not which.ids:
        parked = State.PARKED in wanted.states
        return ChosenLetters([], wanted, await wanted.how_many(outbox), parked)
    named = await find_records(outbox, which.ids)
    for record in named:
        if record.state not in LETTERS:
            ticket, state = record.message.id, record.state
            raise BadInputError(f"message {ticket} is {state}: only dead and parked ones can be given here")
    return ChosenLetters(named, wanted, len(named), any(record.state == State.PARKED for record in named))


def selection(chosen: LetterFilter, now: float, *, states: frozenset[State]) -> Selection:
    """`states`: which, unless one is chosen. What dies from now on is not meant."""
    age = 0.0 if chosen.older_than is None else duration("--older-than", chosen.older_than)
    return Selection(
        states=states if chosen.state is None else frozenset({State(chosen.state)}),
        bot=bot_of(chosen.bot),
        chat_id=chat_of(chosen.chat),
        reason=chosen.reason,
        before=now - age,
    )


def check(which: LetterChoice) -> None:
    """Raises BadInputError unless letters were named, or described."""
    described = which.everything or which.chosen != LetterFilter()
    if which.ids and described:
        raise BadInputError("give either ids, or a filter or --all, not both")
    if not which.ids and not described:
        raise BadInputError("say which letters: their ids, a filter such as --reason blocked, or --all")


REPLAYED_UNASKED = 100  # so many are replayed without a question
PERHAPS = "parked messages may have been delivered already, and would then arrive twice"


def list_letters(store: str | None, chosen: LetterFilter, *, limit: int, as_json: bool) -> None:
    wanted = selection(chosen, Clock().now(), states=LETTERS)
    list_records(store, wanted, limit=limit, nothing="No such dead letter.", as_json=as_json)


def replay_letters(store: str | None, which: LetterChoice, *, yes: bool, as_json: bool) -> None:
    choice = using(store, lambda outbox: choose(outbox, which, Clock().now()))
    if choice.parked and choice.size:
        terminal.note(f"tidegate: note: {PERHAPS}")
    if choice.size > REPLAYED_UNASKED:
        confirm(f"Replay {counted(choice.size, 'letter')}?", yes=yes)
    done = using(store, lambda outbox: work_on(choice, outbox, outbox.replay, "Replaying"))
    _tell("replayed", done, as_json=as_json)


def drop_letters(store: str | None, which: LetterChoice, *, yes: bool, as_json: bool) -> None:
    choice = using(store, lambda outbox: choose(outbox, which, Clock().now()))
    if choice.size:
        confirm(f"Drop {counted(choice.size, 'letter')} for good?", yes=yes)
    done = using(store, lambda outbox: work_on(choice, outbox, outbox.drop, "Dropping"))
    _tell("dropped", done, as_json=as_json)


async def work_on(choice: ChosenLetters, outbox: Outbox, act: Act, title: str) -> int:
    with progress_bar(title, choice.size) as tell:
        if choice.named:
            return await work_through([record.message.id for record in choice.named], act, tell)
        return await work_off(outbox, choice.wanted, act, tell)


def _tell(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        terminal.put_json({what: count})
    else:
        terminal.put_line(f"{what.capitalize()} {amount(count, 'letter')}.")
