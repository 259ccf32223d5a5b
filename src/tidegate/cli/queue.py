"""`tidegate queue`: inspect, pause, resume and cancel queued messages."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import (
    WAITING,
    Selection,
    amount,
    bot_of,
    chat_of,
    counted,
    due_times,
    find_records,
    record_details,
    record_json,
    record_table,
)
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, Yes, command_group
from tidegate.cli.progress import progress_bar, work_off, work_through
from tidegate.cli.store import known_bots, using, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Record, State, TicketId, Why
from tidegate.outbox.port import Outbox, OutboxStats, StoreHealth

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.stores.store import StoreActivity


app = command_group("Inspect, pause, resume and cancel queued messages.")

StateName = StrEnum("StateName", "queued retry sending parked dead delivered expired cancelled replaced any")
Id = Annotated[str, typer.Argument(metavar="ID", help="As shown by queue list; its beginning is enough.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="As shown by queue list; its beginning is enough.")
]
States = Annotated[
    list[StateName] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="queued, retry, sending, parked, dead, delivered, expired, cancelled, replaced or any; "
        "repeatable. Default: messages that wait or are being sent.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="At most this many, the oldest.")]

OPEN: Final = frozenset({State.QUEUED, State.RETRY, State.SENDING})
SENDER_COUNTS: Final = ("uncertain", "urgent")  # counted in the sender's memory, not in the store
NO_SENDER: Final = "none runs, so nothing is sent: start one with tidegate worker"
NO_WORKER: Final = "no worker runs: start one with tidegate worker"
DATED_AFTER: Final = 120.0  # seconds: a longer wait is shown with its date
_IN_SECONDS = re.compile(r"\bin (\d+(?:\.\d+)?) s\b")
ENDS: Final = {
    State.QUEUED: "it waits",
    State.RETRY: "it waits",
    State.SENDING: "it is being sent right now",
    State.DELIVERED: "it was delivered{when}",
    State.DEAD: "it died{when}: {told}. {again}",
    State.PARKED: "it was parked{when}, since it may have arrived: {told}. {again}",
    State.EXPIRED: "its deadline passed{when}, before its turn came",
    State.CANCELLED: "it was cancelled{when}",
    State.REPLACED: "a newer one with the same coalesce key replaced it{when}",
}


# --- stats ---


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show how many messages are in which state, which process sends, and what is paused."""

    async def look(gate: "Tidegate") -> dict[str, Any]:
        store = gate.core.store
        facts = StoreFacts(
            await store.activity(), await known_bots(gate), await store.pauses(), await store.sender_health()
        )
        return stats_report(await gate.stats(), facts)

    found = using_gate(store, look)
    terminal.report(found, stats_picture(found), as_json=as_json)


class StoreFacts(NamedTuple):
    activity: "StoreActivity"
    bots: list[BotId]
    paused: list[tuple[BotId, ChatId | None]]
    health: StoreHealth | None = None  # of the processes that send


def stats_report(counts: OutboxStats, facts: StoreFacts) -> dict[str, Any]:
    """Build the report. Its first three keys are those of `GET /queue/stats`; `sender` is None if none sends.

    A store with several senders has `processes` (others than this) and `delivers` in place of a sender.
    """
    letters = counts.dead + counts.parked
    lines = {"high": counts.high, "normal": counts.normal, "low": counts.low, "retry": counts.retry}
    apart = (*lines, *SENDER_COUNTS)
    activity = facts.activity
    others = (
        {} if activity.processes is None else {"processes": activity.processes, "delivers": activity.delivers}
    )
    rest = {name: count for name, count in msgspec.structs.asdict(counts).items() if name not in apart}
    return {
        "stats": lines | {"dlq": letters},
        "total_queued": counts.waiting,
        "total_failed": letters,
        **rest,
        "sender": None if activity.sender is None else msgspec.to_builtins(activity.sender),
        **others,
        "health": None
        if facts.health is None
        else {"ready": facts.health.ready, "reasons": list(facts.health.reasons)},
        "bots": facts.bots,
        "paused": [{"bot": bot, "chat_id": chat} for bot, chat in facts.paused],
    }


def stats_picture(found: dict[str, Any]) -> Table:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    lines = found["stats"]
    parts = (f"{name} {lines[name]:,}" for name in ("high", "normal", "low", "retry") if lines[name])
    grid.add_row("waiting", f"{found['total_queued']:,}", " · ".join(parts))
    for name, hint in (
        ("sending", ""),
        ("delivered", ""),
        ("dead", "tidegate dlq list"),
        ("parked", "the outcome is unknown: tidegate dlq list --state parked"),
        ("expired", "the deadline passed before their turn came"),
        ("cancelled", ""),
        ("replaced", "by newer ones with the same coalesce key"),
        ("refused", "429s heard"),
        ("direct", "direct calls made; up to 5 s ago"),
        ("direct_refused", "direct calls answered 429"),
        ("direct_failed", "direct calls answered 5xx"),
        ("direct_given_up", "direct calls whose turn came later than max_wait"),
    ):
        grid.add_row(name, f"{found[name]:,}", hint if found[name] else "")
    if found["spooled"]:
        grid.add_row("spooled", f"{found['spooled']:,}", "on this machine, until Redis takes them")
    grid.add_section()
    if "processes" in found:
        grid.add_row("processes", f"{found['processes']:,}", _processes(delivers=found["delivers"]))
    else:
        grid.add_row("sender", "", _sender(found["sender"]))
    if found["health"] is not None:
        style = "yellow" if found["health"]["ready"] else "bold red"
        for reason in found["health"]["reasons"]:
            grid.add_row("health", "", Text(reason, style=style))
        if not found["health"]["reasons"]:
            grid.add_row("health", "", Text("ready", style="green"))
    for place in found["paused"]:
        chat = place["chat_id"]
        where = f"bot {place['bot']}" + ("" if chat is None else f", chat {chat}")
        options = f"--bot {place['bot']}" + ("" if chat is None else f" --chat {chat}")
        grid.add_row("paused", "", Text(f"{where}: tidegate queue resume {options}", "yellow"))
    return grid


def _sender(sender: dict[str, Any] | None) -> Text:
    if sender is None:
        return Text(NO_SENDER, style="bold red")
    return Text(f"process {sender['pid']} ({sender['command']})", style="green")


def _processes(*, delivers: bool) -> Text:
    if not delivers:
        return Text(f"no worker: {NO_SENDER}", style="bold red")
    return Text("use this store beside this command; some deliver", style="green")


# --- list, show ---


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
    wanted = Selection(states=states_of(state or []), bot=bot_of(bot), chat_id=chat_of(chat))
    nothing = (
        "No such message is known." if state else "Nothing waits here. For messages that ended: --state any"
    )
    list_records(store, wanted, limit=limit, nothing=nothing, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message, its text included."""
    show_record(store, ticket, as_json=as_json)


def states_of(names: Sequence[str]) -> frozenset[State]:
    if "any" in names:
        return frozenset(State)
    return frozenset(map(State, names)) or OPEN


def list_records(store: str | None, wanted: Selection, *, limit: int, nothing: str, as_json: bool) -> None:
    """Print the records as a table or as JSON, or `nothing` if there are none."""

    # One more than asked for tells whether there are more.
    async def look(outbox: Outbox) -> tuple[list[Record], dict[TicketId, float]]:
        found = await wanted.records(outbox, limit + 1)
        return found, await due_times(outbox, found[:limit], Clock().now())

    records, due = using(store, look)
    more, records = len(records) > limit, records[:limit]
    rest = [Text(f"These are the oldest {limit:,}; for more: --limit", style="dim")] if more else []
    found = {
        "messages": [record_json(record) | {"due_at": due.get(record.message.id)} for record in records],
        "more": more,
    }
    parts = [record_table(records, Clock().now(), due), *rest] if records else [nothing]
    terminal.report(found, *parts, as_json=as_json)


def show_record(store: str | None, ticket: str, *, as_json: bool) -> None:
    [record] = using(store, lambda outbox: find_records(outbox, [ticket]))
    terminal.report(record_json(record), record_details(record, Clock().now()), as_json=as_json)


# --- why ---


@app.command()
def why(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Explain what a message waits for, and when it should be sent."""

    async def look(gate: "Tidegate") -> tuple[Record, Why]:
        [record] = await find_records(gate.outbox, [ticket])
        waits = await gate.outbox.why(record.message.id)
        if waits and waits.state in WAITING and await _no_worker(gate):
            waits = Why(waits.state, (NO_WORKER, *waits.waits_for), None)
        [record] = await find_records(gate.outbox, [record.message.id])
        # Its state may have changed since it was explained.
        return record, waits if waits and waits.state == record.state else Why(record.state, (), None)

    record, explained = using_gate(store, look)
    now = Clock().now()
    found, lines = why_report(record, explained, now), why_lines(record, explained, now)
    terminal.report(found, *lines, as_json=as_json)


async def _no_worker(gate: "Tidegate") -> bool:
    """Return True if no process delivers. A store with one sender explains that by itself."""
    activity = await gate.core.store.activity()
    return activity.processes is not None and not activity.delivers


def why_report(record: Record, explained: Why, now: float) -> dict[str, Any]:
    """Build the report; `expected_in` and `expected_at` are None if they depend on a person or a process."""
    expected = explained.expected_in if explained.state in WAITING else None  # else it has left
    return {
        "id": record.message.id,
        "state": explained.state,
        "waits_for": list(explained.waits_for),
        "expected_in": expected,
        "expected_at": None if expected is None else now + expected,
        "reason": record.reason,
        "description": record.description,
    }


def why_lines(record: Record, explained: Why, now: float) -> list[str]:
    """Return the state, then each thing that it waits for, then when it should be sent."""
    ticket = record.message.id
    stuck = explained.state == State.SENDING and bool(explained.waits_for) and explained.expected_in is None
    if explained.state not in WAITING and not stuck:
        return [printable(f"{ticket}: {ending(record, explained.state, now)}")]
    doing = "was being sent when its sender stopped" if stuck else "waits"
    tried = f", tried {amount(record.attempts, 'time')} ({record.reason})" if record.attempts else ""
    head = f"{ticket} {doing}{tried}; it was put {moment(record.created_at, now)}. It waits for:"
    if explained.expected_in is None:
        tail = "When it is sent depends on a person or a process, not on time."
    else:
        tail = f"It should be sent {moment(now + explained.expected_in, now)}."
    reasons = (f"  · {dated(reason, now)}" for reason in explained.waits_for)
    return [printable(line) for line in (head, *reasons, tail)]


def dated(reason: str, now: float) -> str:
    """Replace a long time in a reason by its date."""

    def date(match: re.Match[str]) -> str:
        seconds = float(match[1])
        return match[0] if seconds < DATED_AFTER else moment(now + seconds, now)

    return _IN_SECONDS.sub(date, reason)


def ending(record: Record, state: State, now: float) -> str:
    return ENDS[state].format(
        when="" if record.settled_at is None else f" {moment(record.settled_at, now)}",
        told=f"{record.reason or 'for no known reason'} ({record.description or 'no description'})",
        again=f"Send it again with tidegate dlq replay {record.message.id}",
    )


# --- pause, resume ---


@app.command()
def pause(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Stop sending queued messages: of every bot, of one bot, or of one chat. A restart does not end it.

    Messages that are being sent are finished. Messages are still accepted, and direct calls go on.
    """
    set_paused(store, bot=bot, chat=chat, paused=True, as_json=as_json)


@app.command()
def resume(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """End a pause that was made with the same options. Pauses of a bot and of its chats are separate."""
    set_paused(store, bot=bot, chat=chat, paused=False, as_json=as_json)


def set_paused(store: str | None, *, bot: int | None, chat: str | None, paused: bool, as_json: bool) -> None:
    chat_id = chat_of(chat)

    async def act(gate: "Tidegate") -> list[BotId]:
        bots = which_bots(await known_bots(gate), bot)
        for each in bots:
            await (gate.outbox.pause if paused else gate.outbox.resume)(each, chat_id)
        return bots

    bots = using_gate(store, act)
    where = "" if chat_id is None else f", chat {chat_id}"
    terminal.report(
        {"paused" if paused else "resumed": [{"bot": each, "chat_id": chat_id} for each in bots]},
        *(f"{'Paused' if paused else 'Resumed'}: bot {each}{where}" for each in bots),
        as_json=as_json,
    )


def which_bots(known: Sequence[BotId], bot: int | None) -> list[BotId]:
    """Return the bot that was named, or all. Raises BadInputError for one that the store does not know."""
    if not known:
        raise BadInputError("the store knows no bot yet: there is nothing to pause or resume")
    if bot is None:
        return list(known)
    if bot not in known:
        names = ", ".join(map(str, known))
        raise BadInputError(f"--bot: the store knows no bot {bot}: it knows {names}")
    return [BotId(bot)]


# --- cancel ---


class MessageChoice(NamedTuple):
    """The messages that the command line names or describes."""

    ids: Sequence[str]
    everything: bool
    bot: int | None
    chat: str | None


@app.command()
def cancel(
    ids: Ids = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All messages that wait.")] = False,
    bot: OfBot = None,
    chat: OfChat = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Cancel messages that wait: by their ids, of a chat, of a bot, or all.

    A message that is being sent cannot be cancelled. Exits with 1 if a message that was named no longer
    waited.
    """
    which = MessageChoice(ids=ids or [], everything=everything, bot=bot, chat=chat)
    check_choice(which)
    if which.ids:
        cancelled, left = _cancel_named(store, which.ids, yes=yes)
    else:
        cancelled, left = _cancel_found(store, which, yes=yes), 0
    lines = [f"Cancelled {amount(cancelled, 'message')}."]
    if left:
        lines.append(f"{amount(left, 'message')} no longer waited: see tidegate queue show ID")
    terminal.report({"cancelled": cancelled, "not_cancelled": left}, *lines, as_json=as_json)
    raise typer.Exit(1 if left else 0)


def check_choice(which: MessageChoice) -> None:
    """Raise BadInputError unless exactly one way of choosing was used."""
    filtered = which.bot is not None or which.chat is not None
    if which.ids and (filtered or which.everything):
        raise BadInputError("give either ids, or --chat, --bot or --all, not both")
    if not which.ids and not filtered and not which.everything:
        raise BadInputError("say which messages: their ids, --chat CHAT, --bot N or --all")


def _cancel_named(store: str | None, ids: Sequence[str], *, yes: bool) -> tuple[int, int]:
    tickets = [record.message.id for record in using(store, lambda outbox: find_records(outbox, ids))]
    if len(tickets) > 1:
        confirm(f"Cancel {amount(len(tickets), 'message')}?", yes=yes)

    async def act(outbox: Outbox) -> int:
        with progress_bar("Cancelling", len(tickets)) as tell:
            return await work_through(tickets, outbox.cancel, tell)

    done = using(store, act)
    return done, len(tickets) - done


def _cancel_found(store: str | None, which: MessageChoice, *, yes: bool) -> int:
    bot, chat = bot_of(which.bot), chat_of(which.chat)
    wanted = Selection(states=WAITING, bot=bot, chat_id=chat, before=Clock().now())

    async def look(outbox: Outbox) -> int:
        await outbox.settle_crashed()
        return await wanted.how_many(outbox)

    count = using(store, look)
    if count > 1:
        confirm(f"Cancel {counted(count, 'message')}?", yes=yes)

    async def act(outbox: Outbox) -> int:
        with progress_bar("Cancelling", count) as tell:
            return await work_off(outbox, wanted, outbox.cancel, tell)

    return using(store, act) if count else 0
