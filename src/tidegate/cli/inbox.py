"""`tidegate inbox`: updates and events that wait, are handled, or were parked."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes, a_bots_number
from tidegate.cli.progress import progress_bar
from tidegate.cli.store import using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import distance, moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.gate import Tidegate
from tidegate.inbound.inbox import (
    Inbox,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    bot_source,
    hook_source,
)
from tidegate.inbound.signed_hooks import unpack_event
from tidegate.stores.sqlite.outbox import SqliteOutbox

app = typer.Typer()

Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="As tidegate inbox shows them: an update_id, the id of an event."),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="As tidegate inbox shows it.")]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="Of this bot only, by its number."),
]
OfHook = Annotated[
    str | None, typer.Option("--hook", metavar="NAME", help="Of this hook only, such as payments.")
]
All = Annotated[bool, typer.Option("--all", help="All that are parked; with --bot or --hook, all of that.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="The newest so many.")]

NEWEST = 20


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
    """See which updates and events could not be handled, and why; handle them again, or drop them.

    Alone, it says how many wait or are being handled, and lists those that are parked. An update is parked
    when its handler raised an error, took too long, or killed its process again and again. It is kept, with
    the reason, until you replay or drop it; others of its chat go on. The bot may run meanwhile.
    """
    if context.invoked_subcommand is None:
        list_(bot=bot, hook=hook, limit=limit, store=store, as_json=as_json)
    elif (bot, hook, limit, store, as_json) != (None, None, NEWEST, None, False):
        raise typer.BadParameter(f"options belong behind {context.invoked_subcommand}")


@app.command("list", epilog="[b]Try it:[/b]  tidegate inbox list --hook payments --limit 100")
def list_(
    *,
    bot: OfBot = None,
    hook: OfHook = None,
    limit: Limit = NEWEST,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Say how many wait or are being handled, and list those that are parked: as tidegate inbox alone."""
    show_inbox(store, bot=bot, hook=hook, limit=limit, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate inbox show 815  ·  tidegate inbox show evt_1 --hook payments")
def show(
    key: Key, *, bot: OfBot = None, hook: OfHook = None, store: Store = None, as_json: AsJson = False
) -> None:
    """Show everything known of a parked one: why and when it was given up, its chat, its body in full."""
    show_update(store, UpdateChoice([key], bot=bot, hook=hook), as_json=as_json)


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
    """Handle parked ones again, behind whatever waits in their chats: by their keys, or all.

    A bot that runs takes them up within a second. What a handler had sent through Tidegate before it failed
    is not sent again. Asks before it replays more than 100.
    """
    replay_updates(store, UpdateChoice(keys or [], everything, bot, hook), yes=yes, as_json=as_json)


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
    """Forget parked ones for good: by their keys, or all. Asks first."""
    drop_updates(store, UpdateChoice(keys or [], everything, bot, hook), yes=yes, as_json=as_json)


EVERY: Final = 1_000_000  # more than can be parked


class UpdateChoice(NamedTuple):
    """What was written on the command line."""

    keys: Sequence[str] = ()
    everything: bool = False
    bot: int | None = None
    hook: str | None = None


def source_of(bot: int | None, hook: str | None) -> InboxSource | None:
    """None: of any source."""
    if bot is not None and hook is not None:
        raise BadInputError("give either --bot or --hook, not both")
    if bot is not None:
        return bot_source(bot)
    return None if hook is None else hook_source(hook)


async def choose(inbox: Inbox, which: UpdateChoice) -> list[ParkedItem]:
    """Those meant, the oldest first: so they are replayed in the order in which they were parked.

    Raises BadInputError for a key that is not parked, or that several sources have.
    """
    source = source_of(which.bot, which.hook)
    if which.keys and which.everything:
        raise BadInputError("give either keys or --all, not both")
    if not which.keys and not which.everything:
        raise BadInputError("say which ones: their keys as tidegate inbox shows them, or --all")
    parked = (await inbox.parked(source, limit=EVERY))[::-1]
    if which.everything:
        return parked
    for key in which.keys:
        _check(key, [one.item.source for one in parked if one.item.key == key])
    return [one for one in parked if one.item.key in set(which.keys)]


def _check(key: str, sources: Sequence[InboxSource]) -> None:
    if not sources:
        raise BadInputError(f"{key} is not parked: look with tidegate inbox")
    if len(sources) > 1:
        named = ", ".join(source.replace(":", " ", 1) for source in sources)
        raise BadInputError(f"{key} is parked for {named}: say which one with --bot or --hook")


REPLAYED_UNASKED: Final = 100  # so many are replayed without a question
LANES_PER_STEP: Final = 100  # lanes whose steps share commits

Act = Callable[[InboxSource, str], Awaitable[bool]]


def replay_updates(store: str | None, which: UpdateChoice, *, yes: bool, as_json: bool) -> None:
    chosen = _chosen(store, which)
    if len(chosen) > REPLAYED_UNASKED:
        confirm(f"Replay {amount(len(chosen), 'arrival')}?", yes=yes)
    done = using_gate(store, lambda gate: work_on(chosen, gate.handler_registry.inbox.replay, "Replaying"))
    _tell("replayed", done, as_json=as_json)


def drop_updates(store: str | None, which: UpdateChoice, *, yes: bool, as_json: bool) -> None:
    chosen = _chosen(store, which)
    if chosen:
        confirm(f"Drop {amount(len(chosen), 'arrival')} for good?", yes=yes)
    done = using_gate(store, lambda gate: work_on(chosen, gate.handler_registry.inbox.drop, "Dropping"))
    _tell("dropped", done, as_json=as_json)


def _chosen(store: str | None, which: UpdateChoice) -> list[ParkedItem]:
    async def look(gate: Tidegate) -> list[ParkedItem]:
        return await choose(gate.handler_registry.inbox, which)

    return using_gate(store, look)


async def work_on(chosen: Sequence[ParkedItem], act: Act, title: str) -> int:
    """One lane in order, lanes side by side. Returns how many were still there."""
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


def _tell(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        terminal.put_json({what: count})
    else:
        terminal.put_line(f"{what.capitalize()} {amount(count, 'arrival')}.")


Json = dict[str, Any]


def update_json(one: ParkedItem) -> Json:
    """`body`: the update; of an event as it was sent, in base64 if it is no text: `encoding` says so."""
    arrival = one.item
    known = {
        "source": arrival.source,
        "key": arrival.key,
        "lane": arrival.lane,
        "arrived_at": one.arrived_at,
        "parked_at": one.parked_at,
        "reason": one.reason,
    }
    return known | (_event(arrival.body) if arrival.source.startswith("hook:") else _update(arrival.body))


def chat_of_update(arrival: InboxItem) -> str:
    """Empty for what is of no chat: events, and updates that are nobody's."""
    is_of_chat = arrival.source.startswith("bot:") and not arrival.lane.startswith("update ")
    return arrival.lane if is_of_chat else ""


def name_of(arrival: InboxItem) -> str:
    """`bot 42`, `hook payments`."""
    return printable(arrival.source.replace(":", " ", 1))


def update_details(one: ParkedItem, now: float) -> RenderableType:
    """An item a line, what is not known left out; then the headers and the body, whole."""
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
    except (msgspec.DecodeError, UnicodeDecodeError):  # what another version wrote: shown as it is
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
    """JSON over several lines; anything else as it is."""
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return str(body)
    return json.dumps(body, indent=2, ensure_ascii=False)


def _indented(text: str) -> Text:
    return Text("\n".join(f"  {printable(line)}" for line in text.splitlines()), overflow="fold")


class InboxView(NamedTuple):
    """One more parked one than asked for tells that there are more."""

    stats: InboxStats
    parked: list[ParkedItem]
    is_left: bool = False  # what is in hand is that of a process that ended


def show_inbox(store: str | None, *, bot: int | None, hook: str | None, limit: int, as_json: bool) -> None:
    source = source_of(bot, hook)

    async def look(gate: Tidegate) -> InboxView:
        inbox = gate.handler_registry.inbox
        return InboxView(
            await inbox.stats(), await inbox.parked(source, limit=limit + 1), await _nobody_handles(gate)
        )

    seen = using_gate(store, look)
    if as_json:
        terminal.put_json(inbox_report(seen, limit))
    else:
        terminal.put(picture(seen, limit, Clock().now()))


def show_update(store: str | None, which: UpdateChoice, *, as_json: bool) -> None:
    async def look(gate: Tidegate) -> list[ParkedItem]:
        return await choose(gate.handler_registry.inbox, which)

    [one] = using_gate(store, look)
    if as_json:
        terminal.put_json(update_json(one))
    else:
        terminal.put(update_details(one, Clock().now()))


async def _nobody_handles(gate: Tidegate) -> bool:
    """Who sends for a file handles what arrives. In Redis, what the dead held goes back by itself."""
    return isinstance(gate.outbox, SqliteOutbox) and await gate.outbox.sender() is None


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
        parts.append(Text("None of those that are parked is of this source."))
    if len(seen.parked) > limit:
        parts.append(Text(f"These are the newest {limit:,}; there are more: --limit", style="dim"))
    return Group(*parts)


def _counts(seen: InboxView) -> list[str]:
    waiting, handling, parked = seen.stats.waiting, seen.stats.handling, seen.stats.parked
    busy = 0 if seen.is_left else handling
    waits, are = "waits" if waiting == 1 else "wait", "is" if busy == 1 else "are"
    lines = [f"{waiting:,} {waits}, {busy:,} {are} being handled, {parked:,} parked"]
    if seen.is_left and handling:
        were, they = ("was", "it is") if handling == 1 else ("were", "they are")
        ended = "in hand of a process that ended"
        lines.append(f"{handling:,} {were} {ended}: {they} handled at the next start")
    return lines


def _table(parked: Sequence[ParkedItem], now: float) -> Table:
    """A row each; in a terminal of 80 columns the reasons take several lines, and are whole."""
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
