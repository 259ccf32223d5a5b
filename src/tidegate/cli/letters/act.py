"""`tidegate dlq`: dead letters are listed, sent again, or dropped."""

from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.batches import Act, bar, work_off, work_through
from tidegate.cli.letters.choice import Choice, Filter, Which, choose, selection
from tidegate.cli.queue.looks import show_records
from tidegate.cli.selection import LETTERS, amount, found
from tidegate.cli.stores import using
from tidegate.clock import Clock
from tidegate.outbox.base import Outbox

FEW = 100  # so many are replayed without a question
PERHAPS = "parked messages may have been delivered already, and would then arrive twice"


def show_list(store: str | None, chosen: Filter, *, limit: int, as_json: bool) -> None:
    wanted = selection(chosen, Clock().now(), states=LETTERS)
    show_records(store, wanted, limit=limit, nothing="No such dead letter.", as_json=as_json)


def replay(store: str | None, which: Which, *, yes: bool, as_json: bool) -> None:
    choice = using(store, lambda outbox: choose(outbox, which, Clock().now()))
    if choice.parked and choice.size:
        terminal.note(f"tidegate: note: {PERHAPS}")
    if choice.size > FEW:
        make_sure(f"Replay {found(choice.size, 'letter')}?", yes=yes)
    done = using(store, lambda outbox: work_on(choice, outbox, outbox.replay, "Replaying"))
    _tell("replayed", done, as_json=as_json)


def drop(store: str | None, which: Which, *, yes: bool, as_json: bool) -> None:
    choice = using(store, lambda outbox: choose(outbox, which, Clock().now()))
    if choice.size:
        make_sure(f"Drop {found(choice.size, 'letter')} for good?", yes=yes)
    done = using(store, lambda outbox: work_on(choice, outbox, outbox.drop, "Dropping"))
    _tell("dropped", done, as_json=as_json)


async def work_on(choice: Choice, outbox: Outbox, act: Act, title: str) -> int:
    with bar(title, choice.size) as tell:
        if choice.named:
            return await work_through([record.message.id for record in choice.named], act, tell)
        return await work_off(outbox, choice.wanted, act, tell)


def _tell(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        terminal.put_json({what: count})
    else:
        terminal.put_line(f"{what.capitalize()} {amount(count, 'letter')}.")
