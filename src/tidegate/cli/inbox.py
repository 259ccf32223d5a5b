"""`tidegate inbox`: updates and events that wait, are handled, or were parked."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import CANDIDATES, amount, only_one, unreadable_lines
from tidegate.cli.options import AsJson, OfBot, Store, Yes
from tidegate.cli.progress import progress_bar
from tidegate.cli.store import sender_is_gone, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import distance, moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.inbound.inbox import (
    Inbox,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    bot_source,
    check_replayable,
    hook_source,
)
from tidegate.inbound.signed_hooks import unpack_event
from tidegate.ops.reports import unreadable_json

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


app = typer.Typer(add_completion=False)

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="As shown by tidegate inbox: an update_id, or the id of an event."),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="As shown by tidegate inbox.")]
OfHook = Annotated[
    str | None, typer.Option("--hook", metavar="NAME", help="Only of this hook, such as payments.")
]
All = Annotated[bool, typer.Option("--all", help="All that are parked, of any source or of --bot or --hook.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="At most this many, the newest.")]

Json = dict[str, Any]
Act = Callable[[InboxSource, str], Awaitable[bool]]

NEWEST: Final = 20
MOST_PARKED: Final = 1_000_000  # more than can be parked
REPLAYED_UNASKED: Final = 100  # items that are replayed without a question
LANES_PER_STEP: Final = 100  # lanes whose steps share commits


class UpdateChoice(NamedTuple):
    """The items that the command line names."""

    keys: Sequence[str] = ()
    everything: bool = False
    bot: int | None = None
    hook: str | None = None


class InboxView(NamedTuple):
    """The state of an inbox. One more parked item than asked for tells that there are more."""

    stats: InboxStats
    parked: list[ParkedItem]
    is_left: bool = False  # the items being handled belong to a process that ended


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
    """List updates and events that could not be handled; replay or drop them.

    Without a subcommand, shows how many wait or are being handled, and lists those that are parked. An update
    is parked when its handler raised an error, took too long, or killed its process several times. It is kept
    with the reason until you replay or drop it; other updates of its chat go on. The bot may run meanwhile.
    """
    if context.invoked_subcommand is None:
        list_(bot=bot, hook=hook, limit=limit, store=store, as_json=as_json)
    elif (bot, hook, limit, store, as_json) != (None, None, NEWEST, None, False):
        raise typer.BadParameter(f"options belong after {context.invoked_subcommand}")


@app.command("list", epilog="[b]Try it:[/b]  tidegate inbox list --hook payments --limit 100")
def list_(
    *,
    bot: OfBot = None,
    hook: OfHook = None,
    limit: Limit = NEWEST,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Show how many wait or are being handled, and list those that are parked. Same as tidegate inbox."""
    source = source_of(bot, hook)

    async def look(gate: "Tidegate") -> InboxView:
        inbox = gate.inbox
        parked = await inbox.parked(source, limit=limit + 1)
        return InboxView(await inbox.stats(), parked, await sender_is_gone(gate))

    seen = using_gate(store, look)
    terminal.report(inbox_report(seen, limit), picture(seen, limit, Clock().now()), as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate inbox show 815  ·  tidegate inbox show evt_1 --hook payments")
def show(
    key: Key, *, bot: OfBot = None, hook: OfHook = None, store: Store = None, as_json: AsJson = False
) -> None:
    """Show everything known of a parked item: the reason, the times, the chat, and the whole body."""
    [one] = _chosen(store, UpdateChoice([key], bot=bot, hook=hook))
    terminal.report(update_json(one), update_details(one, Clock().now()), as_json=as_json)


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
    """Handle parked items again, after those that wait in their chats: by their keys, or all.

    A running bot picks them up within a second. Messages that the handler put through Tidegate before it
    failed are not sent again. Items that cannot be read stay parked. Asks before it replays more than 100.
    """
    chosen = _chosen(store, UpdateChoice(keys or [], everything, bot, hook))
    readable = [one for one in chosen if not one.is_unreadable]
    unreadable = len(chosen) - len(readable)
    if unreadable and keys:
        for one in chosen:
            check_replayable(one)
    if len(readable) > REPLAYED_UNASKED:
        confirm(f"Replay {amount(len(readable), 'item')}?", yes=yes)
    done = using_gate(store, lambda gate: work_on(readable, gate.inbox.replay, "Replaying"))
    lines = [f"Replayed {amount(done, 'item')}."]
    if unreadable:
        lines.append(f"{amount(unreadable, 'item')} cannot be read and stays parked: show it, or drop it.")
    terminal.report({"replayed": done, "unreadable": unreadable}, *lines, as_json=as_json)


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
    """Delete parked items for good: by their keys, or all. Asks first."""
    chosen = _chosen(store, UpdateChoice(keys or [], everything, bot, hook))
    if chosen:
        confirm(f"Drop {amount(len(chosen), 'item')} for good?", yes=yes)
    done = using_gate(store, lambda gate: work_on(chosen, gate.inbox.drop, "Dropping"))
    terminal.report({"dropped": done}, f"Dropped {amount(done, 'item')}.", as_json=as_json)


def source_of(bot: int | None, hook: str | None) -> InboxSource | None:
    """Return the source that the options name; None for any source."""
    if bot is not None and hook is not None:
        raise BadInputError("give either --bot or --hook, not both")
    if bot is not None:
        return bot_source(bot)
    return None if hook is None else hook_source(hook)


async def choose(inbox: Inbox, which: UpdateChoice) -> list[ParkedItem]:
    """Find the items, the oldest first, so that they are replayed in the order in which they were parked.

    A key may be shortened. Raises BadInputError for one that is not parked, that is the beginning of several,
    or that several sources have.
    """
    source = source_of(which.bot, which.hook)
    if which.keys and which.everything:
        raise BadInputError("give either keys or --all, not both")
    if not which.keys and not which.everything:
        raise BadInputError("say which items: their keys, as shown by tidegate inbox, or --all")
    parked = (await inbox.parked(source, limit=MOST_PARKED))[::-1]
    if which.everything:
        return parked
    keys = [_whole_key(key, parked) for key in which.keys]
    for key in keys:
        _check(key, [one.item.source for one in parked if one.item.key == key])
    return [one for one in parked if one.item.key in set(keys)]


def _whole_key(short: str, parked: Sequence[ParkedItem]) -> str:
    """Return the key that begins so; the text itself if it is one, or if none does."""
    known = sorted({one.item.key for one in parked if one.item.key.startswith(short)})
    return short if short in known or not short or not known else only_one(short, known[: CANDIDATES + 1])


def _check(key: str, sources: Sequence[InboxSource]) -> None:
    if not sources:
        raise BadInputError(f"{key} is not parked: see tidegate inbox")
    if len(sources) > 1:
        named = ", ".join(source.replace(":", " ", 1) for source in sources)
        raise BadInputError(f"{key} is parked for {named}: say which one with --bot or --hook")


def _chosen(store: str | None, which: UpdateChoice) -> list[ParkedItem]:
    async def look(gate: "Tidegate") -> list[ParkedItem]:
        return await choose(gate.inbox, which)

    return using_gate(store, look)


async def work_on(chosen: Sequence[ParkedItem], act: Act, title: str) -> int:
    """Act on the items: one lane in order, lanes side by side. Return how many were still parked."""
    lanes: dict[tuple[InboxSource, str], list[str]] = {}
    for one in chosen:
        lanes.setdefault((one.item.source, one.item.lane), []).append(one.item.key)
    works = [_work_through(source, keys, act) for (source, _), keys in lanes.items()]
    done = 0
    with progress_bar(title, len(chosen)) as tell:
        for start in range(0, len(works), LANES_PER_STEP):
            done += sum(await asyncio.gather(*works[start : start + LANES_PER_STEP]))
            tell(done)
    return done


async def _work_through(source: InboxSource, keys: Sequence[str], act: Act) -> int:
    return sum([await act(source, key) for key in keys])


def update_json(one: ParkedItem) -> Json:
    """Return a parked item as JSON. The body of an event is text, or base64 if `encoding` says so.

    One that cannot be read has all its bytes in base64, their number, and the first of them as hex and text.
    """
    item = one.item
    known = {
        "source": item.source,
        "key": item.key,
        "lane": item.lane,
        "arrived_at": one.arrived_at,
        "parked_at": one.parked_at,
        "reason": one.reason,
    }
    if one.is_unreadable:
        return known | unreadable_json(item.body)
    return known | (_event(item.body) if item.source.startswith("hook:") else _update(item.body))


def chat_of_update(item: InboxItem) -> str:
    """Return the chat of an update; empty for events, and for updates without a chat."""
    is_of_chat = item.source.startswith("bot:") and not item.lane.startswith("update ")
    return item.lane if is_of_chat else ""


def name_of(item: InboxItem) -> str:
    """Return the source in words: `bot 42`, `hook payments`."""
    return printable(item.source.replace(":", " ", 1))


def update_details(one: ParkedItem, now: float) -> RenderableType:
    """Show one field a line, without those that are not known; then the headers and the whole body."""
    known = update_json(one)
    items = {
        "source": name_of(one.item),
        "key": one.item.key,
        "chat": chat_of_update(one.item),
        "sent": _moment(known.get("timestamp"), now),
        "arrived": moment(one.arrived_at, now),
        "parked": moment(one.parked_at, now),
        "reason": one.reason,
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in items.items():
        if value:
            grid.add_row(name, Text(printable(value), "red" if name == "reason" else ""))
    parts: list[RenderableType] = [grid]
    if known.get("headers"):
        headers = "\n".join(f"{name}: {value}" for name, value in known["headers"].items())
        parts += [Text("headers", style="dim"), _indented(headers)]
    if one.is_unreadable:
        return Group(*parts, *unreadable_lines(one.item.body))
    if known.get("encoding") == "base64":
        return Group(*parts, Text("body, in base64", style="dim"), _indented(known["body"]))
    return Group(*parts, Text("body", style="dim"), _indented(_readable(known["body"])))


def _update(body: bytes) -> Json:
    try:
        return {"body": msgspec.json.decode(body)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"body": body.decode(errors="replace")}


def _event(record: bytes) -> Json:
    try:
        event = unpack_event(record)
    except (msgspec.DecodeError, UnicodeDecodeError):  # written by another version: shown as it is
        return {"headers": {}, "timestamp": None} | _text_of(record)
    return {"headers": event.headers, "timestamp": event.timestamp} | _text_of(event.body)


def _text_of(body: bytes) -> Json:
    try:
        return {"body": body.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}


def _moment(at: float | None, now: float) -> str:
    return "" if at is None else moment(at, now)


def _readable(body: object) -> str:
    """Return JSON over several lines; anything else as it is."""
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return str(body)
    return json.dumps(body, indent=2, ensure_ascii=False)


def _indented(text: str) -> Text:
    return Text("\n".join(f"  {printable(line)}" for line in text.splitlines()), overflow="fold")


def inbox_report(seen: InboxView, limit: int) -> dict[str, Any]:
    counts = {name: getattr(seen.stats, name) for name in InboxStats.__struct_fields__}
    listed = [update_json(one) for one in seen.parked[:limit]]
    left = seen.stats.handling if seen.is_left else 0
    return {"stats": counts, "left_behind": left, "parked": listed, "more": len(seen.parked) > limit}


def picture(seen: InboxView, limit: int, now: float) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in _counts(seen)]
    if seen.parked:
        parts += [Text(), _table(seen.parked[:limit], now)]
    elif seen.stats.parked:
        parts.append(Text("No parked item is of this source."))
    if len(seen.parked) > limit:
        parts.append(Text(f"These are the newest {limit:,}; for more: --limit", style="dim"))
    return Group(*parts)


def _counts(seen: InboxView) -> list[str]:
    waiting, handling, parked = seen.stats.waiting, seen.stats.handling, seen.stats.parked
    busy = 0 if seen.is_left else handling
    waits, are = "waits" if waiting == 1 else "wait", "is" if busy == 1 else "are"
    lines = [f"{waiting:,} {waits}, {busy:,} {are} being handled, {parked:,} parked"]
    if seen.is_left and handling:
        were, they = ("was", "it is") if handling == 1 else ("were", "they are")
        ended = "being handled by a process that ended"
        lines.append(f"{handling:,} {were} {ended}: {they} handled at the next start")
    return lines


def _table(parked: Sequence[ParkedItem], now: float) -> Table:
    """One row each. In a terminal of 80 columns the reasons take several lines, but are complete."""
    has_chats = any(chat_of_update(one.item) for one in parked)
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    rows.add_column("source", overflow="fold", max_width=20)
    rows.add_column("key", overflow="fold", max_width=36)
    for name in (*(["chat"] if has_chats else []), "parked"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("reason", overflow="fold", ratio=1, min_width=16)
    for one in parked:
        rows.add_row(
            Text(name_of(one.item)),
            Text(printable(one.item.key)),
            *([Text(printable(chat_of_update(one.item)))] if has_chats else []),
            distance(one.parked_at, now),
            Text(printable(one.reason), "red"),
        )
    return rows
