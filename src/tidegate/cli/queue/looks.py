"""`tidegate queue list` and `show`: messages as they are."""

from collections.abc import Sequence

from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.record_view import as_json as plain
from tidegate.cli.record_view import details, table
from tidegate.cli.selection import Selection, bot_of, chat_of, find
from tidegate.cli.stores import using
from tidegate.clock import Clock
from tidegate.model import State

OPEN = frozenset({State.QUEUED, State.RETRY, State.SENDING})


def show_list(
    store: str | None,
    *,
    bot: int | None,
    chat: str | None,
    states: Sequence[str],
    limit: int,
    as_json: bool,
) -> None:
    wanted = Selection(states=states_of(states), bot=bot_of(bot), chat_id=chat_of(chat))
    nothing = "Nothing waits here. What has ended: --state any" if not states else "No such message is known."
    show_records(store, wanted, limit=limit, nothing=nothing, as_json=as_json)


def states_of(names: Sequence[str]) -> frozenset[State]:
    if "any" in names:
        return frozenset(State)
    return frozenset(map(State, names)) or OPEN


def show_records(store: str | None, wanted: Selection, *, limit: int, nothing: str, as_json: bool) -> None:
    """As a table, or as JSON; `nothing` is said where there are none."""
    # One more than asked for tells whether there are more.
    records = using(store, lambda outbox: wanted.records(outbox, limit + 1))
    more, records = len(records) > limit, records[:limit]
    if as_json:
        terminal.put_json({"messages": [plain(record) for record in records], "more": more})
        return
    if not records:
        terminal.put_line(nothing)
        return
    terminal.put(table(records, Clock().now()))
    if more:
        terminal.put(Text(f"These are the oldest {limit:,}; there are more: --limit", style="dim"))


def show_one(store: str | None, ticket: str, *, as_json: bool) -> None:
    [record] = using(store, lambda outbox: find(outbox, [ticket]))
    if as_json:
        terminal.put_json(plain(record))
    else:
        terminal.put(details(record, Clock().now()))
