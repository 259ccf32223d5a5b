"""`tidegate queue`: look at the messages that wait, pause them, cancel them."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

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
    find_records,
    record_details,
    record_table,
)
from tidegate.cli.messages import record_json as plain
from tidegate.cli.options import AsJson, Store, Yes, a_bots_number
from tidegate.cli.progress import progress_bar, work_off, work_through
from tidegate.cli.store import StoreFacts, facts_of, using, using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import moment
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.gate import Tidegate
from tidegate.model import BotId, Record, State, TicketId, Why
from tidegate.outbox.port import Outbox, OutboxStats
from tidegate.stores.redis import operator

app = typer.Typer(help="Look at what waits, hold it, let it go, take it out.")

# The states of a message (tidegate.model), which would be slow to import.
StateName = StrEnum("StateName", "queued retry sending parked dead delivered expired cancelled replaced any")
Id = Annotated[str, typer.Argument(metavar="ID", help="As queue list shows it.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="As queue list shows them.")]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="Of this bot only, by its number."),
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Of this chat only: a number or @name.")
]
States = Annotated[
    list[StateName] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="queued, retry, sending, parked, dead, delivered, expired, cancelled, replaced or any; "
        "may be given again. Not given: what waits or is being sent.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="The oldest so many.")]


@app.callback(invoke_without_command=True)
def queue(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def stats(*, store: Store = None, as_json: AsJson = False) -> None:
    """Say how many messages are where, who sends them, and what is paused."""
    show_stats(store, as_json=as_json)


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
    list_messages(store, bot=bot, chat=chat, states=state or [], limit=limit, as_json=as_json)


@app.command()
def show(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a message, its text included."""
    show_message(store, ticket, as_json=as_json)


@app.command()
def why(ticket: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Say what a message waits for, and when it should leave."""
    show_why(store, ticket, as_json=as_json)


@app.command()
def pause(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Hold what is queued: of every bot, of one, or of one chat. It stays so after a restart.

    What is being sent ends as it would. Messages are still accepted, and direct calls go on.
    """
    set_paused(store, bot=bot, chat=chat, paused=True, as_json=as_json)


@app.command()
def resume(*, bot: OfBot = None, chat: OfChat = None, store: Store = None, as_json: AsJson = False) -> None:
    """Let go again what was paused, by the same options. A bot's pause and a chat's are two."""
    set_paused(store, bot=bot, chat=chat, paused=False, as_json=as_json)


@app.command()
def cancel(
    ids: Ids = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that waits.")] = False,
    bot: OfBot = None,
    chat: OfChat = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take messages out that wait: by their ids, of a chat, of a bot, or all.

    What is being sent cannot be taken back. Ends with 1 if a message that was named no longer waited.
    """
    which = MessageChoice(ids=ids or [], everything=everything, bot=bot, chat=chat)
    raise typer.Exit(cancel_messages(store, which, yes=yes, as_json=as_json))


class MessageChoice(NamedTuple):
    """What was written on the command line."""

    ids: Sequence[str]
    everything: bool
    bot: int | None
    chat: str | None


def cancel_messages(store: str | None, which: MessageChoice, *, yes: bool, as_json: bool) -> int:
    """Returns the exit code: 1 if a message that was named could not be cancelled."""
    check_choice(which)
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


def check_choice(which: MessageChoice) -> None:
    """Raises BadInputError unless exactly one way of choosing was used."""
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
    wanted = Selection(
        states=WAITING, bot=bot_of(which.bot), chat_id=chat_of(which.chat), before=Clock().now()
    )
    count = using(store, wanted.how_many)
    if count > 1:
        confirm(f"Cancel {counted(count, 'message')}?", yes=yes)

    async def act(outbox: Outbox) -> int:
        with progress_bar("Cancelling", count) as tell:
            return await work_off(outbox, wanted, outbox.cancel, tell)

    return using(store, act) if count else 0


def set_paused(store: str | None, *, bot: int | None, chat: str | None, paused: bool, as_json: bool) -> None:
    chat_id = chat_of(chat)

    async def act(gate: Tidegate) -> list[BotId]:
        bots = which_bots((await facts_of(gate)).bots, bot)
        for each in bots:
            await (gate.outbox.pause if paused else gate.outbox.resume)(each, chat_id)
        return bots

    bots = using_gate(store, act)
    places = [{"bot": each, "chat_id": chat_id} for each in bots]
    if as_json:
        terminal.put_json({"paused" if paused else "resumed": places})
        return
    where = "" if chat_id is None else f", chat {chat_id}"
    for each in bots:
        terminal.put_line(f"{'Paused' if paused else 'Resumed'}: bot {each}{where}")


def which_bots(known: Sequence[BotId], bot: int | None) -> list[BotId]:
    """The one that was named, or all. Raises BadInputError for one that the store has never heard of."""
    if not known:
        raise BadInputError("the store knows no bot yet: there is nothing to pause or resume")
    if bot is None:
        return list(known)
    if bot not in known:
        names = ", ".join(map(str, known))
        raise BadInputError(f"--bot: the store knows no bot {bot}: it knows {names}")
    return [BotId(bot)]


OPEN = frozenset({State.QUEUED, State.RETRY, State.SENDING})


def list_messages(
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
    list_records(store, wanted, limit=limit, nothing=nothing, as_json=as_json)


def states_of(names: Sequence[str]) -> frozenset[State]:
    if "any" in names:
        return frozenset(State)
    return frozenset(map(State, names)) or OPEN


def list_records(store: str | None, wanted: Selection, *, limit: int, nothing: str, as_json: bool) -> None:
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
    terminal.put(record_table(records, Clock().now()))
    if more:
        terminal.put(Text(f"These are the oldest {limit:,}; there are more: --limit", style="dim"))


def show_message(store: str | None, ticket: str, *, as_json: bool) -> None:
    [record] = using(store, lambda outbox: find_records(outbox, [ticket]))
    if as_json:
        terminal.put_json(plain(record))
    else:
        terminal.put(record_details(record, Clock().now()))


# Counted by the sender for itself, not in the store.
OF_THE_SENDER = ("uncertain", "urgent")
NO_SENDER = "none runs, so nothing leaves: start one with tidegate worker"


def show_stats(store: str | None, *, as_json: bool) -> None:
    async def look(gate: Tidegate) -> dict[str, Any]:
        return stats_report(await gate.stats(), await facts_of(gate))

    found = using_gate(store, look)
    if as_json:
        terminal.put_json(found)
    else:
        terminal.put(stats_picture(found))


def stats_report(stats: OutboxStats, facts: StoreFacts) -> dict[str, Any]:
    """The first three keys are those of `GET /queue/stats`; `sender` is None if nobody sends.

    A store that many may send for has `processes`, others than this, and `delivers`, in place of a sender.
    """
    letters = stats.dead + stats.parked
    lines = {"high": stats.high, "normal": stats.normal, "low": stats.low, "retry": stats.retry}
    apart = (*lines, *OF_THE_SENDER)
    rest = {name: count for name, count in msgspec.structs.asdict(stats).items() if name not in apart}
    return {
        "stats": lines | {"dlq": letters},
        "total_queued": stats.waiting,
        "total_failed": letters,
        **rest,
        "sender": None if facts.sender is None else msgspec.to_builtins(facts.sender),
        **({} if facts.company is None else facts.company._asdict()),
        "bots": facts.bots,
        "paused": [{"bot": bot, "chat_id": chat} for bot, chat in facts.paused],
    }


def stats_picture(found: dict[str, Any]) -> Table:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    lines = found["stats"]
    grid.add_row("waiting", f"{found['total_queued']:,}", _listed(lines, "high", "normal", "low", "retry"))
    for name, hint in (
        ("sending", ""),
        ("delivered", ""),
        ("dead", "tidegate dlq list"),
        ("parked", "the outcome is unknown: tidegate dlq list --state parked"),
        ("expired", "the deadline passed before their turn came"),
        ("cancelled", ""),
        ("replaced", "by newer ones with the same coalesce key"),
        ("refused", "429s heard"),
    ):
        grid.add_row(name, f"{found[name]:,}", hint if found[name] else "")
    if found["spooled"]:
        grid.add_row("spooled", f"{found['spooled']:,}", "on this machine, until Redis takes them")
    grid.add_section()
    if "processes" in found:
        grid.add_row("processes", f"{found['processes']:,}", _shared(delivers=found["delivers"]))
    else:
        grid.add_row("sender", "", _sender(found["sender"]))
    for place in found["paused"]:
        grid.add_row(
            "paused", "", Text(f"{_place(place)}: tidegate queue resume {_options(place)}", "yellow")
        )
    return grid


def _sender(sender: dict[str, Any] | None) -> Text:
    if sender is None:
        return Text(NO_SENDER, style="bold red")
    return Text(f"process {sender['pid']} ({sender['command']})", style="green")


def _shared(*, delivers: bool) -> Text:
    """In Redis, whoever likes delivers."""
    if not delivers:
        return Text(f"no worker: {NO_SENDER}", style="bold red")
    return Text("use this store beside this command; some deliver", style="green")


def _listed(counts: Mapping[str, int], *names: str) -> str:
    return " · ".join(f"{name} {counts[name]:,}" for name in names if counts[name])


def _place(place: Mapping[str, Any]) -> str:
    return f"bot {place['bot']}" + ("" if place["chat_id"] is None else f", chat {place['chat_id']}")


def _options(place: Mapping[str, Any]) -> str:
    return f"--bot {place['bot']}" + ("" if place["chat_id"] is None else f" --chat {place['chat_id']}")


LONG = 120.0  # seconds
_IN_SECONDS = re.compile(r"\bin (\d+(?:\.\d+)?) s\b")
NO_WORKER = "nobody sends: start a worker (tidegate worker)"
WAITING_STATES = frozenset({State.QUEUED, State.RETRY})
ENDS = {
    State.QUEUED: "it waits",
    State.RETRY: "it waits",
    State.SENDING: "it is being sent right now",
    State.DELIVERED: "it was delivered{when}",
    State.DEAD: "it died{when}: {told}. {again}",
    State.PARKED: "it was parked{when}, since it may have arrived: {told}. {again}",
    State.EXPIRED: "its deadline passed{when}, before its turn came",
    State.CANCELLED: "it was cancelled{when}",
    State.REPLACED: "a newer one with the same coalesce key took its place{when}",
}


def show_why(store: str | None, ticket: str, *, as_json: bool) -> None:
    async def look(outbox: Outbox) -> tuple[Record, Why]:
        why = await outbox.why(TicketId(ticket))
        link = getattr(outbox, "connection", None)  # of a store in Redis, which does not know by itself who sends
        if (
            why
            and why.state in WAITING_STATES
            and link is not None
            and not (await operator.other_processes(link)).delivers
        ):
            why = Why(why.state, (NO_WORKER, *why.waits_for), None)
        [record] = await find_records(outbox, [ticket])
        # It may have gone on since it was explained.
        return record, why if why and why.state == record.state else Why(record.state, (), None)

    record, why = using(store, look)
    now = Clock().now()
    if as_json:
        terminal.put_json(why_report(record, why, now))
    else:
        for line in why_lines(record, why, now):
            terminal.put_line(line)


def why_report(record: Record, why: Why, now: float) -> dict[str, Any]:
    """`expected_in` and `expected_at` are None if that depends on someone."""
    expected = why.expected_in if why.state in WAITING_STATES else None  # what is being sent has left
    return {
        "id": record.message.id,
        "state": why.state,
        "waits_for": list(why.waits_for),
        "expected_in": expected,
        "expected_at": None if expected is None else now + expected,
        "reason": record.reason,
        "description": record.description,
    }


def why_lines(record: Record, why: Why, now: float) -> list[str]:
    """For a person: the state, then each thing it waits for, then when."""
    ticket = record.message.id
    stuck = why.state == State.SENDING and bool(why.waits_for) and why.expected_in is None
    if why.state not in WAITING_STATES and not stuck:
        return [printable(f"{ticket}: {what_became(record, why.state, now)}")]
    doing = "was being sent when its sender stopped" if stuck else "waits"
    tried = f", tried {amount(record.attempts, 'time')} ({record.reason})" if record.attempts else ""
    head = f"{ticket} {doing}{tried}; it was put {moment(record.created_at, now)}. It waits for:"
    if why.expected_in is None:
        tail = "When it leaves depends on someone, not on time."
    else:
        tail = f"It should leave {moment(now + why.expected_in, now)}."
    return [
        printable(line) for line in (head, *(f"  · {dated(reason, now)}" for reason in why.waits_for), tail)
    ]


def dated(reason: str, now: float) -> str:
    """The same, with the date in the place of a long time."""

    def date(match: re.Match[str]) -> str:
        seconds = float(match[1])
        return match[0] if seconds < LONG else moment(now + seconds, now)

    return _IN_SECONDS.sub(date, reason)


def what_became(record: Record, state: State, now: float) -> str:
    return ENDS[state].format(
        when="" if record.settled_at is None else f" {moment(record.settled_at, now)}",
        told=f"{record.reason or 'for no known reason'} ({record.description or 'nothing was said'})",
        again=f"Send it again with tidegate dlq replay {record.message.id}",
    )
