"""`tidegate dlq`: list dead letters, replay them, or drop them."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import typer

from tidegate.cli import terminal
from tidegate.cli.messages import LETTERS, Selection, amount, bot_of, chat_of, counted, find_records
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, Yes, command_group
from tidegate.cli.progress import Act, progress_bar, work_off, work_through
from tidegate.cli.queue import Id, Ids, Limit, list_records, show_record
from tidegate.cli.store import using
from tidegate.cli.terminal import confirm
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Record, State
from tidegate.outbox.message_times import duration
from tidegate.outbox.port import Outbox
from tidegate.outbox.transitions import UNREADABLE

app = command_group("List, replay and drop dead letters.")

Reason = Annotated[
    str | None, typer.Option(metavar="WORD", help="Only with this reason: blocked, bad_request, attempts …")
]
OlderThan = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Only if they ended longer ago: 90s, 30m, 2h, 7d.")
]
OneState = Annotated[
    Literal["dead", "parked"] | None,
    typer.Option("--state", help="Only in this state. parked: the outcome is unknown."),
]
All = Annotated[bool, typer.Option("--all", help="All dead letters; parked ones only with --state parked.")]

REPLAYED_UNASKED: Final = 100  # letters that are replayed without a question
SEE_UNREADABLE: Final = f"tidegate dlq list --reason {UNREADABLE}"
MAYBE_DELIVERED: Final = "parked messages may have been delivered already, and would then arrive twice"


class LetterFilter(NamedTuple):
    """The filter options of the command line."""

    bot: int | None = None
    chat: str | None = None
    reason: str | None = None
    older_than: str | None = None
    state: Literal["dead", "parked"] | None = None


class LetterArguments(NamedTuple):
    """The letters that the command line names or describes."""

    ids: Sequence[str]
    everything: bool
    chosen: LetterFilter


class ChosenLetters(NamedTuple):
    """Either the letters named, or all that `wanted` finds. `parked`: some of them are parked."""

    named: list[Record]
    wanted: Selection
    size: int
    parked: bool


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
    wanted = selection(chosen, Clock().now(), states=LETTERS)
    nothing = "No dead letters." if chosen == LetterFilter() else "No dead letter is like that."
    list_records(store, wanted, limit=limit, nothing=nothing, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message: why it died, and what Telegram said."""
    show_record(store, ticket, as_json=as_json)


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
    """Queue dead letters again, as if put now: by their ids, by a filter, or all.

    Parked messages may have been delivered already: they are replayed only if named by id or by
    --state parked. Asks before it replays more than 100.
    """
    chosen = LetterFilter(bot=bot, chat=chat, reason=reason, older_than=older_than, state=state)
    which = LetterArguments(ids=ids or [], everything=everything, chosen=chosen)
    choice = using(store, lambda outbox: choose_now(outbox, which))
    for record in choice.named:
        check_readable(record)
    if choice.parked and choice.size:
        terminal.note(f"tidegate: note: {MAYBE_DELIVERED}")
    if choice.size > REPLAYED_UNASKED:
        confirm(f"Replay {counted(choice.size, 'letter')}?", yes=yes)
    done, unreadable = using(store, lambda outbox: replay_chosen(choice, outbox))
    if unreadable:
        terminal.note(f"tidegate: note: {counted(unreadable, 'letter')} cannot be decoded: {SEE_UNREADABLE}")
    terminal.report({"replayed": done}, f"Replayed {amount(done, 'letter')}.", as_json=as_json)


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
    which = LetterArguments(ids=ids or [], everything=everything, chosen=chosen)
    choice = using(store, lambda outbox: choose_now(outbox, which))
    if choice.size:
        confirm(f"Drop {counted(choice.size, 'letter')} for good?", yes=yes)
    done = using(store, lambda outbox: work_on(choice, outbox, outbox.drop, "Dropping"))
    terminal.report({"dropped": done}, f"Dropped {amount(done, 'letter')}.", as_json=as_json)


async def choose_now(outbox: Outbox, which: LetterArguments) -> ChosenLetters:
    """`choose`, with what a sender that died has left."""
    await outbox.settle_crashed()
    return await choose(outbox, which, Clock().now())


def check_readable(record: Record) -> None:
    """Raise BadInputError for a letter that cannot be sent again, as its body cannot be decoded."""
    message = record.message
    if not message.method:
        raise BadInputError(
            f"message {message.id} cannot be replayed: {record.description}. "
            f"Drop it with tidegate dlq drop {message.id}"
        )


async def replay_chosen(choice: ChosenLetters, outbox: Outbox) -> tuple[int, int]:
    """Return how many were replayed, and how many of those described cannot be."""
    done = await work_on(choice, outbox, outbox.replay, "Replaying")
    if choice.named or choice.wanted.reason not in {None, UNREADABLE}:
        return done, 0
    left = msgspec.structs.replace(choice.wanted, reason=UNREADABLE)
    return done, await left.how_many(outbox)


async def choose(outbox: Outbox, which: LetterArguments, now: float) -> ChosenLetters:
    """Find the letters. Raises BadInputError for an id that is unknown or no dead letter.

    Parked ones are included only if their state or their id was given.
    """
    check_choice(which)
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
    """Translate the options. `states` is the default; letters that die after `now` are not included."""
    age = 0.0 if chosen.older_than is None else duration("--older-than", chosen.older_than)
    return Selection(
        states=states if chosen.state is None else frozenset({State(chosen.state)}),
        bot=bot_of(chosen.bot),
        chat_id=chat_of(chosen.chat),
        reason=chosen.reason,
        before=now - age,
    )


def check_choice(which: LetterArguments) -> None:
    """Raise BadInputError unless letters were either named or described."""
    described = which.everything or which.chosen != LetterFilter()
    if which.ids and described:
        raise BadInputError("give either ids, or a filter or --all, not both")
    if not which.ids and not described:
        raise BadInputError("say which letters: their ids, a filter such as --reason blocked, or --all")


async def work_on(choice: ChosenLetters, outbox: Outbox, act: Act, title: str) -> int:
    with progress_bar(title, choice.size) as tell:
        if choice.named:
            return await work_through([record.message.id for record in choice.named], act, tell)
        return await work_off(outbox, choice.wanted, act, tell)
