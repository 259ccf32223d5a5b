"""`tidegate queue cancel`: take out what waits."""

from collections.abc import Sequence
from typing import NamedTuple

from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.batches import bar, work_off, work_through
from tidegate.cli.selection import WAITING, Selection, amount, bot_of, chat_of, find, found
from tidegate.cli.stores import using
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.outbox.base import Outbox


class Which(NamedTuple):
    """What was written on the command line."""

    ids: Sequence[str]
    everything: bool
    bot: int | None
    chat: str | None


def cancel(store: str | None, which: Which, *, yes: bool, as_json: bool) -> int:
    """Returns the exit code: 1 if a message that was named could not be cancelled."""
    check(which)
    if which.ids:
        cancelled, left = _cancel_named(store, which.ids, yes=yes)
    else:
        cancelled, left = _cancel_found(store, which, yes=yes), 0
    if as_json:
        terminal.put_json({"cancelled": cancelled, "not_cancelled": left})
    else:
        terminal.put_line(f"Cancelled {amount(cancelled, 'message')}.")
        if left:
            terminal.put_line(f"{amount(left, 'message')} no longer waited: look with tidegate queue show ID")
    return 1 if left else 0


def check(which: Which) -> None:
    """Raises BadInputError unless exactly one way of choosing was used."""
    filtered = which.bot is not None or which.chat is not None
    if which.ids and (filtered or which.everything):
        raise BadInputError("give either ids, or --chat, --bot or --all, not both")
    if not which.ids and not filtered and not which.everything:
        raise BadInputError("say which messages: their ids, --chat CHAT, --bot N or --all")


def _cancel_named(store: str | None, ids: Sequence[str], *, yes: bool) -> tuple[int, int]:
    tickets = [record.message.id for record in using(store, lambda outbox: find(outbox, ids))]
    if len(tickets) > 1:
        make_sure(f"Cancel {amount(len(tickets), 'message')}?", yes=yes)

    async def act(outbox: Outbox) -> int:
        with bar("Cancelling", len(tickets)) as tell:
            return await work_through(tickets, outbox.cancel, tell)

    done = using(store, act)
    return done, len(tickets) - done


def _cancel_found(store: str | None, which: Which, *, yes: bool) -> int:
    wanted = Selection(
        states=WAITING, bot=bot_of(which.bot), chat_id=chat_of(which.chat), before=Clock().now()
    )
    count = using(store, wanted.how_many)
    if count > 1:
        make_sure(f"Cancel {found(count, 'message')}?", yes=yes)

    async def act(outbox: Outbox) -> int:
        with bar("Cancelling", count) as tell:
            return await work_off(outbox, wanted, outbox.cancel, tell)

    return using(store, act) if count else 0
