"""Which dead letters are meant: those named, or those that a filter finds."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tidegate.cli.selection import LETTERS, Selection, bot_of, chat_of, find
from tidegate.cli.times import duration
from tidegate.errors import BadInputError
from tidegate.model import Record, State
from tidegate.outbox.base import Outbox


class Filter(NamedTuple):
    """What was written on the command line."""

    bot: int | None = None
    chat: str | None = None
    reason: str | None = None
    older_than: str | None = None
    state: Literal["dead", "parked"] | None = None


class Which(NamedTuple):
    """Likewise."""

    ids: Sequence[str]
    everything: bool
    chosen: Filter


class Choice(NamedTuple):
    """Either some were named, or all of `wanted` are meant. `parked`: some of them are."""

    named: list[Record]
    wanted: Selection
    size: int
    parked: bool


async def choose(outbox: Outbox, which: Which, now: float) -> Choice:
    """Raises BadInputError for what is not known, or is no letter. Parked ones are meant if that is said."""
    check(which)
    wanted = selection(which.chosen, now, states=frozenset({State.DEAD}))
    if not which.ids:
        parked = State.PARKED in wanted.states
        return Choice([], wanted, await wanted.how_many(outbox), parked)
    named = await find(outbox, which.ids)
    for record in named:
        if record.state not in LETTERS:
            ticket, state = record.message.id, record.state
            raise BadInputError(f"message {ticket} is {state}: only dead and parked ones can be given here")
    return Choice(named, wanted, len(named), any(record.state == State.PARKED for record in named))


def selection(chosen: Filter, now: float, *, states: frozenset[State]) -> Selection:
    """`states`: which, unless one is chosen. What dies from now on is not meant."""
    age = 0.0 if chosen.older_than is None else duration("--older-than", chosen.older_than)
    return Selection(
        states=states if chosen.state is None else frozenset({State(chosen.state)}),
        bot=bot_of(chosen.bot),
        chat_id=chat_of(chosen.chat),
        reason=chosen.reason,
        before=now - age,
    )


def check(which: Which) -> None:
    """Raises BadInputError unless letters were named, or described."""
    described = which.everything or which.chosen != Filter()
    if which.ids and described:
        raise BadInputError("give either ids, or a filter or --all, not both")
    if not which.ids and not described:
        raise BadInputError("say which letters: their ids, a filter such as --reason blocked, or --all")
