"""`tidegate queue`: inspect, pause, resume, reprioritize and cancel queued messages."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import (
    Selection,
    amount,
    bot_of,
    chat_of,
    counted,
    due_times,
    find_records,
    record_details,
    record_table,
)
from tidegate.cli.options import AsJson, OfBot, OfChat, Store, Yes, command_group
from tidegate.cli.progress import progress_bar, work_off, work_through
from tidegate.cli.store import using, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import moment, span
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Priority, Record, State, TicketId, Why
from tidegate.ops.reports import (
    BOT_COUNTS,
    WAITING,
    explain,
    known_bots,
    queue_report,
    record_json,
    why_report,
)
from tidegate.outbox.port import Outbox

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


app = command_group("Say why messages wait; list, pause, resume and cancel them.")

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
PAUSES_SHOWN: Final = 5
NO_SENDER: Final = "none runs, so nothing is sent: start one with tidegate worker"
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


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show how many messages are in which state, which process sends, and what is paused."""
    found = using_gate(store, queue_report)
    terminal.report(found, stats_picture(found), as_json=as_json)


def stats_picture(found: dict[str, Any]) -> Table:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    lines = found["stats"]
    parts = (f"{name} {lines[name]:,}" for name in ("high", "normal", "low", "retry") if lines[name])
    grid.add_row("waiting", f"{found['total_queued']:,}", " · ".join(parts))
    grid.add_row("oldest", *_oldest(found["oldest_seconds"]))
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
    _add_bots(grid, found["by_bot"])
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
        grid.add_row("paused", "", Text(f"{where}: {resume_command(place['bot'], chat)}", "yellow"))
    return grid


def _add_bots(grid: Table, by_bot: list[dict[str, Any]]) -> None:
    if len(by_bot) > 1:
        for its in by_bot:
            grid.add_row(f"bot {its['bot']}", f"{its['waiting']:,}", _numbers_of_bot(its))
        grid.add_section()


def _oldest(seconds: float | None) -> tuple[str, str]:
    return ("", "") if seconds is None else (span(seconds), "since the first of them could have gone")


def _numbers_of_bot(its: dict[str, Any]) -> str:
    parts = [f"{name} {its[name]:,}" for name in BOT_COUNTS if its[name]]
    if its["oldest_seconds"] is not None:
        parts.append(f"oldest {span(its['oldest_seconds'])}")
    return " · ".join(parts)


def _sender(sender: dict[str, Any] | None) -> Text:
    if sender is None:
        return Text(NO_SENDER, style="bold red")
    return Text(f"process {sender['pid']} ({sender['command']})", style="green")


def _processes(*, delivers: bool) -> Text:
    if not delivers:
        return Text(f"no worker: {NO_SENDER}", style="bold red")
    return Text("use this store beside this command; some deliver", style="green")


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


@app.command(epilog="[b]Try it:[/b]  tidegate queue why 9f3a  ·  tidegate queue list --chat 1001 --state any")
def why(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Explain what a message waits for, and when it should be sent.

    Of one that has ended, it says how. queue list finds the id of a message to a chat.
    """

    async def look(gate: "Tidegate") -> tuple[Record, Why]:
        [record] = await find_records(gate.outbox, [ticket])
        found = await explain(gate, record.message.id)
        return found or (record, Why(record.state, (), None))  # it is forgotten in this moment

    record, explained = using_gate(store, look)
    now = Clock().now()
    found, lines = why_report(record, explained, now), why_lines(record, explained, now)
    terminal.report(found, *lines, as_json=as_json)


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
    bot, chat = record.message.bot, record.message.chat_id
    commands = {
        "its bot is paused": resume_command(bot, None),
        "its chat is paused": resume_command(bot, chat),
    }
    reasons = [
        f"  · {dated(reason, now)}" + (f": {commands[reason]}" if reason in commands else "")
        for reason in explained.waits_for
    ]
    return [printable(line) for line in (head, *reasons, tail)]


def resume_command(bot: BotId, chat: ChatId | None) -> str:
    """Return the command that ends a pause of a bot, or of one of its chats."""
    return f"tidegate queue resume --bot {bot}" + ("" if chat is None else f" --chat {chat}")


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


@app.command(epilog="[b]Try it:[/b]  tidegate queue pause --bot 42  ·  tidegate queue pause --chat 1001")
def pause(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Stop sending queued messages: of every bot, of one bot, or of one chat. A restart does not end it.

    Messages that are being sent are finished. Messages are still accepted, and direct calls go on.
    """
    set_paused(store, bot=bot, chat=chat, paused=True, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  tidegate queue resume  ·  tidegate queue resume --chat 1001")
def resume(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """End a pause that was made with the same options. Pauses of a bot and of its chats are separate."""
    set_paused(store, bot=bot, chat=chat, paused=False, as_json=as_json)


def set_paused(store: str | None, *, bot: int | None, chat: str | None, paused: bool, as_json: bool) -> None:
    chat_id = chat_of(chat)

    async def act(gate: "Tidegate") -> tuple[list[BotId], list[tuple[BotId, ChatId | None]]]:
        bots = which_bots(await known_bots(gate), bot)
        for each in bots:
            await (gate.outbox.pause if paused else gate.outbox.resume)(each, chat_id)
        left = [] if paused else await gate.core.store.pauses()
        # Of a chat that is resumed, only the pause of its bot still holds it.
        return bots, [(of, its) for of, its in left if of in bots and (chat_id is None or its is None)]

    bots, left = using_gate(store, act)
    where = "" if chat_id is None else f", chat {chat_id}"
    found: dict[str, object] = {
        "paused" if paused else "resumed": [{"bot": each, "chat_id": chat_id} for each in bots]
    }
    if not paused:
        found["still_paused"] = [{"bot": each, "chat_id": its} for each, its in left]
    terminal.report(
        found,
        *(f"{'Paused' if paused else 'Resumed'}: bot {each}{where}" for each in bots),
        *_still_paused(left),
        as_json=as_json,
    )


def _still_paused(left: Sequence[tuple[BotId, ChatId | None]]) -> list[str]:
    lines = [
        printable(f"Still paused: bot {bot}" + ("" if chat is None else f", chat {chat}"))
        + f": {resume_command(bot, chat)}"
        for bot, chat in left[:PAUSES_SHOWN]
    ]
    if len(left) > PAUSES_SHOWN:
        lines.append(f"{len(left) - PAUSES_SHOWN:,} more are paused: see tidegate queue stats")
    return lines


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


@app.command(epilog="[b]Try it:[/b]  tidegate queue priority 9f3a high")
def priority(
    ticket: Id,
    new: Annotated[Priority, typer.Argument(metavar="high|normal|low", help="The priority that it gets.")],
    *,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Raise or lower the priority of a message that waits.

    It stands by its arrival among the messages of that priority to its chat. A message that is being sent or
    is urgent stays as it is. Exits with 1 if it could not be changed.
    """

    async def act(outbox: Outbox) -> tuple[Record, bool]:
        [record] = await find_records(outbox, [ticket])
        return record, await outbox.reprioritize([record.message.id], new) == 1

    record, changed = using(store, act)
    known = record.message.id
    line = f"{known} has the priority {new} now." if changed else f"{known} does not wait, or is urgent."
    found = {"id": known, "priority": str(new if changed else record.message.priority), "changed": changed}
    terminal.report(found, printable(line), as_json=as_json)
    raise typer.Exit(0 if changed else 1)


class MessageChoice(NamedTuple):
    """The messages that the command line names or describes."""

    ids: Sequence[str]
    everything: bool
    bot: int | None
    chat: str | None


@app.command(epilog="[b]Try it:[/b]  tidegate queue cancel 9f3a  ·  tidegate queue cancel --chat 1001")
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
