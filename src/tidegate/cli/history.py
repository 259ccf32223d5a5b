"""`tidegate history`: list, show and purge the messages that were recorded."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import amount, bot_of, chat_of
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, Yes, command_group
from tidegate.cli.reminders.options import naming_the_database
from tidegate.cli.store import Result, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import moment, short_moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.history import (
    KEEP_DAYS,
    LARGEST_PAGE,
    HistoryMessage,
    HistoryPage,
    HistoryState,
    HistoryStats,
    ReplyChain,
)
from tidegate.outbox.message_times import duration
from tidegate.settings import Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

app = command_group("List, show and purge the messages in and out that were recorded.")

NONE: Final = (
    "Nothing is recorded here. tidegate worker records by itself, a bot after gate.record_history()."
)
OFF: Final = "Nothing is recorded: TIDEGATE_HISTORY=off."
STYLES: Final = {HistoryState.DEAD: "red", HistoryState.PARKED: "yellow", HistoryState.DELIVERED: "green"}
ARROWS: Final = {"in": "←", "out": "→"}

DirectionOption = Annotated[
    Literal["in", "out"] | None, typer.Option("--direction", help="Only what came in, or went out.")
]
States = Annotated[list[HistoryState] | None, typer.Option("--state", help="Only in this state; repeatable.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Not before: 2h or 3d ago, or 2026-12-31, '2026-12-31 09:00'."
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time, likewise.")]
Words = Annotated[
    str | None,
    typer.Option("--text", metavar="WORDS", help="Only with all of these words; 'pay*' is a beginning."),
]
Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, metavar="N", help="At most this many.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on from there, as the last page says.")
]
Place = Annotated[
    list[str],
    typer.Argument(
        metavar="CHAT MESSAGE_ID | TICKET", help="A message by its id in a chat, or by its ticket."
    ),
]
Depth = Annotated[
    int, typer.Option("--depth", min=0, max=100, metavar="N", help="At most this many messages above it.")
]
OlderThan = Annotated[
    str, typer.Option("--older-than", metavar="DURATION", help="What came in or ended longer ago: 90d.")
]


@app.command("list", epilog="[b]Try it:[/b]  tidegate history list --chat 1001 --text 'pay*' --since 7d")
def list_(
    *,
    bot: OfBot = None,
    chat: OfChat = None,
    direction: DirectionOption = None,
    state: States = None,
    since: Since = None,
    until: Until = None,
    text: Words = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List messages in and out, the newest first, by bot, chat, state, time or words of their texts."""
    now, chat_id = Clock().now(), chat_of(chat)
    times = {"since": time_of("--since", since, now), "until": time_of("--until", until, now)}

    async def look(gate: "Tidegate") -> HistoryPage:
        return await gate.history.list(
            bot=bot_of(bot),
            chat_id=chat_id,
            direction=direction,
            states=state or [],
            text=text,
            limit=limit,
            cursor=cursor,
            **times,
        )

    page = _if_any(store, look) or HistoryPage([])
    lines: list[RenderableType] = [message_table(page.messages, now) if page.messages else _nothing(store)]
    if page.cursor is not None:
        lines.append(Text(f"For more: --cursor {page.cursor}, or --limit", style="dim"))
    found = {"messages": [message_json(message) for message in page.messages], "cursor": page.cursor}
    terminal.report(found, *lines, as_json=as_json)


# The number of a group begins with a minus, which must not be read as an option.
@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog="[b]Try it:[/b]  tidegate history show 1001 7  ·  tidegate history show 9f3a41c2d5e6-0000001b",
)
def show(
    place: Place, *, bot: OfBot = None, depth: Depth = 20, store: Store = None, as_json: AsJson = False
) -> None:
    """Show a message: its changes, what it replies to, and the replies to it."""
    number, ticket = _place_of(place)

    async def look(gate: "Tidegate") -> tuple[list[HistoryMessage], ReplyChain | None]:
        if number is None:
            found = await gate.history.find(ticket=ticket)
        else:
            found = await gate.history.find(*number, bot=bot_of(bot))
        first = next((one for one in found if one.telegram_message_id is not None), None)
        if first is None or first.telegram_message_id is None:
            return found, None
        chain = await gate.history.chain(
            first.chat_id, first.telegram_message_id, bot=bot or first.bot, depth=depth
        )
        return found, chain

    found, chain = _if_any(store, look) or ([], None)
    if not found:
        raise BadInputError(
            f"{' '.join(place)} is not in the history: it was not recorded, or is too old; see history list"
        )
    above, replies = ([], []) if chain is None else (chain.above, chain.replies)
    known = {"messages": found, "above": above, "replies": replies}
    as_objects = {name: [message_json(one) for one in messages] for name, messages in known.items()}
    terminal.report(as_objects, _picture(found, above, replies, Clock().now()), as_json=as_json)


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Say how many messages are recorded, of which time, and how much room they take."""

    async def look(gate: "Tidegate") -> tuple[HistoryStats, float | None]:
        return await gate.history.stats(), gate.settings.tidegate_history

    async def look_at_both(gate: "Tidegate") -> tuple[HistoryStats | None, float | None]:
        if not await gate.history.exist():
            return None, gate.settings.tidegate_history
        return await look(gate)

    with naming_the_database():
        known, days = using_gate(store, look_at_both)
    known = known or HistoryStats(messages=0, oldest=None, newest=None, size=None)
    kept = KEEP_DAYS if days is None else days
    found = {**msgspec.structs.asdict(known), "days": kept}
    terminal.report(found, *_stats_lines(known, kept, Clock().now()), as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate history purge --older-than 90d")
def purge(*, older_than: OlderThan, yes: Yes = False, store: Store = None, as_json: AsJson = False) -> None:
    """Delete messages that came in or ended longer ago. Asks first.

    Processes that record delete what is older than TIDEGATE_HISTORY by themselves.
    """
    seconds = duration("--older-than", older_than)
    confirm(f"Delete every recorded message that is older than {older_than}?", yes=yes)
    purged = _if_any(store, lambda gate: gate.history.purge(Clock().now() - seconds)) or 0
    terminal.report({"purged": purged}, f"Deleted {amount(purged, 'message')}.", as_json=as_json)


def time_of(option: str, text: str | None, now: float) -> float | None:
    """Return a time: a duration ago, or a date with or without a time, in the zone of this machine."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return now - duration(option, text)
    except BadInputError:
        raise BadInputError(
            f"{option}: {text!r} is no time: write how long ago, such as 2h or 3d, or 2026-12-31, or"
            " '2026-12-31 09:00'"
        ) from None


def _place_of(place: Sequence[str]) -> tuple[tuple[Any, int] | None, str | None]:
    """Return a chat and a message id, or a ticket."""
    if len(place) == 1:
        return None, place[0]
    if len(place) != 2 or not place[1].isdecimal():  # noqa: PLR2004  (a chat and a message)
        raise BadInputError("say which message: CHAT MESSAGE_ID, such as 1001 7, or its ticket")
    return (chat_of(place[0], "CHAT"), int(place[1])), None


def _if_any(store: str | None, work: "Callable[[Tidegate], Awaitable[Result]]") -> Result | None:
    """Run `work` if there may be a history: looking at it creates no database."""

    async def look(gate: "Tidegate") -> Result | None:
        return await work(gate) if await gate.history.exist() else None

    with naming_the_database():
        return using_gate(store, look)


def message_json(message: HistoryMessage) -> dict[str, Any]:
    return msgspec.structs.asdict(message) | {"state": str(message.state)}


def message_table(messages: Sequence[HistoryMessage], now: float) -> Table:
    """Show one row each. In a terminal of 80 columns the texts are cut short."""
    several = len({message.bot for message in messages}) > 1
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for title in ("when", *(["bot"] if several else []), "chat", "message", "state"):
        rows.add_column(title, no_wrap=True, overflow="ellipsis")
    rows.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for message in messages:
        rows.add_row(
            short_moment(message.created_at, now),
            *([str(message.bot)] if several else []),
            f"{ARROWS[message.direction]} {printable(message.chat_id)}",
            "" if message.telegram_message_id is None else str(message.telegram_message_id),
            Text(message.state, STYLES.get(message.state, "")),
            Text(printable(_what(message))),
        )
    return rows


def _what(message: HistoryMessage) -> str:
    """Return the kind, unless it is the usual one, why it failed, and the text."""
    kind = "" if message.kind in {"sendMessage", "message"} else message.kind
    return ": ".join(filter(None, (kind, message.reason, message.text)))


def _nothing(store: str | None) -> str:
    stats = _if_any(store, lambda gate: gate.history.stats())
    return "No such message." if stats is not None and stats.messages else _none()


def _none() -> str:
    return OFF if Settings.read().tidegate_history == 0 else NONE


def _picture(
    found: Sequence[HistoryMessage],
    above: Sequence[HistoryMessage],
    replies: Sequence[HistoryMessage],
    now: float,
) -> RenderableType:
    parts: list[RenderableType] = []
    if above:
        parts += [Text("replies to", style="dim"), message_table(above, now), Text()]
    for message in found:
        parts += [_details(message, now), Text()]
    if replies:
        parts += [Text("replies to it", style="dim"), message_table(replies, now)]
    return Group(*(parts if replies else parts[:-1]))


def _details(message: HistoryMessage, now: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for title, value in _known_of(message, now):
        grid.add_row(title, Text(printable(value), STYLES.get(message.state, "") if title == "state" else ""))
    return grid


def _known_of(message: HistoryMessage, now: float) -> Iterable[tuple[str, object]]:
    yield "state", message.state
    for field in ("reason", "description", "kind", "bot", "chat_id", "user_id"):
        if (value := getattr(message, field)) is not None:
            yield field, value
    yield "message", message.telegram_message_id or "none"
    for field in ("ticket", "priority", "attempts"):
        if (value := getattr(message, field)) is not None:
            yield field, value
    yield "received" if message.direction == "in" else "put", moment(message.created_at, now)
    if message.ended_at is not None:
        yield "ended", moment(message.ended_at, now)
    if message.text is not None:
        yield "text", message.text


def _stats_lines(known: HistoryStats, days: float, now: float) -> list[str]:
    if known.oldest is None or known.newest is None:
        return [_none()]
    size = "" if known.size is None else f", {known.size / 2**20:,.1f} MB"
    kept = f"Kept for {days:g} days." if days else "TIDEGATE_HISTORY=off: nothing is recorded or purged now."
    return [
        f"{amount(known.messages, 'message')}{size}.",
        f"The oldest: {moment(known.oldest, now)}; the newest: {moment(known.newest, now)}.",
        kept,
    ]
