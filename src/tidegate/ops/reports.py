"""The JSON of the queue, messages, jobs and reminders: the same in commands with `--json` and in the API."""

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.jobs.record import JobRecord
from tidegate.model import BotId, ChatId, File, Message, Record, State, TicketId, Why
from tidegate.outbox.port import OutboxStats, StoreHealth
from tidegate.outbox.reasons import MAY_GO
from tidegate.reminders.occurrences import time_zone
from tidegate.reminders.reminder import Reminder

if TYPE_CHECKING:  # slow to import: some commands do without
    from tidegate.gate import Tidegate
    from tidegate.stores.store import StoreActivity

WAITING: Final = frozenset({State.QUEUED, State.RETRY})
SENDER_COUNTS: Final = ("uncertain", "urgent")  # counted in the sender's memory, not in the store
BOT_COUNTS: Final = ("high", "normal", "low", "retry", "sending", "dead", "parked", "delivered", "refused")
NO_WORKER: Final = "no worker runs: start one with tidegate worker"
NOT_SERVED: Final = (
    "no process that runs delivers for bot {} (a new one says within 10 s that it does): register the bot"
    " with tidegate bot add, or start its program"
)
SHOWN_OF_UNREADABLE: Final = 48  # bytes
LONGEST_SHOWN: Final = 500  # characters of a text within arguments and results of a job
MOST_SHOWN: Final = 20  # items of a list or dictionary within them


# The limits of a bot, as reports and the API name them.
LIMIT_NAMES: Final = {"bot": "bot_rate", "private": "chat_rate", "group": "group_rate"}


class StoreFacts(NamedTuple):
    activity: "StoreActivity"
    bots: list[BotId]
    paused: list[tuple[BotId, ChatId | None]]
    health: StoreHealth | None = None  # of the processes that send
    by_bot: Mapping[BotId, OutboxStats] = {}
    now: float = 0.0


async def queue_report(gate: "Tidegate") -> dict[str, Any]:
    """Return how many messages are in which state, which process sends, and what is paused."""
    store = gate.core.store
    by_bot, paused = await gate.outbox.stats_by_bot(), await store.pauses()
    bots = _bots_of(gate, by_bot, paused)
    health = await store.sender_health()
    facts = StoreFacts(await store.activity(), bots, paused, health, by_bot, gate.clock.now())
    return stats_report(await gate.stats(), facts)


async def known_bots(gate: "Tidegate") -> list[BotId]:
    """Return the bots that are registered, have messages, or are paused."""
    counted, paused = await gate.outbox.stats_by_bot(), await gate.core.store.pauses()
    return _bots_of(gate, counted, paused)


def _bots_of(
    gate: "Tidegate", counted: Iterable[BotId], paused: Iterable[tuple[BotId, ChatId | None]]
) -> list[BotId]:
    return sorted({bot.id for bot in gate.bots()}.union(counted, (bot for bot, _ in paused)))


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
        "oldest_seconds": _age(counts.oldest_at, facts.now),
        "by_bot": [bot_report(bot, facts.by_bot[bot], facts.now) for bot in sorted(facts.by_bot)],
        "sender": None if activity.sender is None else msgspec.to_builtins(activity.sender),
        **others,
        "health": None
        if facts.health is None
        else {"ready": facts.health.ready, "reasons": list(facts.health.reasons)},
        "bots": facts.bots,
        "paused": [{"bot": bot, "chat_id": chat} for bot, chat in facts.paused],
    }


def bot_report(bot: BotId, counts: OutboxStats, now: float) -> dict[str, Any]:
    """Return the numbers of one bot, and how long its oldest message has waited."""
    shown = {name: getattr(counts, name) for name in BOT_COUNTS}
    oldest = {"oldest_at": counts.oldest_at, "oldest_seconds": _age(counts.oldest_at, now)}
    return {"bot": bot, "waiting": counts.waiting, **shown, **oldest}


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - since)


def record_json(record: Record) -> dict[str, Any]:
    """Return one flat object: the fields of the message and of its record. Files by name and size.

    One that cannot be decoded has its bytes as in `unreadable_json`.
    """
    message = record.message
    fields = {name: getattr(message, name) for name in Message.__struct_fields__}
    hidden = {"message", "body"}
    known = {name: getattr(record, name) for name in Record.__struct_fields__ if name not in hidden}
    shown = fields | {"params": without_files(message.params)} | known
    plain: dict[str, Any] = msgspec.to_builtins(shown)
    return plain if record.body is None else plain | unreadable_json(record.body)


def unreadable_json(body: bytes) -> dict[str, Any]:
    """Return all bytes of a stored body in base64, their number, and the first of them as hex and text."""
    first = body[:SHOWN_OF_UNREADABLE]
    return {
        "size": len(body),
        "first_bytes": first.hex(" "),
        "first_text": repr(first),
        "body": base64.b64encode(body).decode(),
        "encoding": "base64",
    }


def without_files(value: object) -> object:
    """Replace each file by its name and size."""
    if isinstance(value, File):
        size = {} if value.content is None else {"bytes": len(value.content)}
        return {"file": value.name or value.path or "unnamed"} | size
    if isinstance(value, Mapping):
        return {name: without_files(item) for name, item in value.items()}
    return [without_files(item) for item in value] if isinstance(value, list | tuple) else value


async def explain(gate: "Tidegate", ticket: TicketId) -> tuple[Record, Why] | None:
    """Return a message and what it waits for, of the same moment; None if it is not known."""
    waits = await gate.outbox.why(ticket)
    record = await gate.outbox.find(ticket)
    if record is None:
        return None
    if waits and waits.state in WAITING:
        waits = (await _delivery(gate)).explained(record.message.bot, waits)
    # Its state may have changed since it was explained.
    return record, waits if waits and waits.state == record.state else Why(record.state, (), None)


async def explain_many(gate: "Tidegate", tickets: Sequence[TicketId]) -> dict[TicketId, Why]:
    """Return what each of these messages waits for; those that wait no more are left out."""
    if not tickets:
        return {}
    delivery = await _delivery(gate)
    found = await asyncio.gather(*map(gate.outbox.why, tickets))
    waiting = {
        ticket: why
        for ticket, why in zip(tickets, found, strict=True)
        if why is not None and why.state in WAITING
    }
    if delivery.no_worker:
        return {ticket: delivery.explained(None, why) for ticket, why in waiting.items()}
    due = [ticket for ticket, why in waiting.items() if why.waits_for == (MAY_GO,)]
    for record in await asyncio.gather(*map(gate.outbox.find, due)) if delivery.bots is not None else ():
        if record is not None:
            ticket = record.message.id
            waiting[ticket] = delivery.explained(record.message.bot, waiting[ticket])
    return waiting


class _Delivery(NamedTuple):
    """The processes that deliver, where any number may. A store with one sender explains that by itself."""

    no_worker: bool = False
    bots: frozenset[BotId] | None = None  # for which some process delivers; None: not known

    def explained(self, bot: BotId | None, why: Why) -> Why:
        if self.no_worker:
            return Why(why.state, (NO_WORKER, *why.waits_for), None)
        if self.bots is not None and bot not in self.bots and why.waits_for == (MAY_GO,):
            return Why(why.state, (NOT_SERVED.format(bot),), None)
        return why


async def _delivery(gate: "Tidegate") -> _Delivery:
    activity = await gate.core.store.activity()
    if activity.processes is None:
        return _Delivery()
    if not activity.delivers:
        return _Delivery(no_worker=True)
    others, own = await gate.core.store.sender_health(), gate.core.health()
    bots = frozenset((*own.bots, *(others.bots if others is not None else ())))
    return _Delivery(bots=bots or None)


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


def job_json(job: JobRecord) -> dict[str, Any]:
    """Return every field. Long values are cut short; bytes and files are given by their sizes."""
    known = {name: getattr(job, name) for name in JobRecord.__struct_fields__}
    values = {name: bounded(known[name]) for name in ("args", "kwargs", "result")}
    return known | values | {"state": str(job.state)}


def bounded(value: object) -> Any:  # noqa: ANN401  (as JSON has it)
    """Return a value as JSON has it, cut short where it is long."""
    if isinstance(value, File):
        return without_files(value)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        left = len(value) - LONGEST_SHOWN
        return value if left <= 0 else f"{value[:LONGEST_SHOWN]}… and {left:,} characters"
    if isinstance(value, Mapping):
        items = list(value.items())[:MOST_SHOWN]
        rest = {"…": f"{len(value) - MOST_SHOWN:,} more"} if len(value) > MOST_SHOWN else {}
        return {bounded(key): bounded(item) for key, item in items} | rest
    if isinstance(value, list | tuple):
        rest_of_list = [f"… and {len(value) - MOST_SHOWN:,} more"] if len(value) > MOST_SHOWN else []
        return [bounded(item) for item in value[:MOST_SHOWN]] + rest_of_list
    return value


def state_of(reminder: Reminder) -> str:
    if reminder.has_ended:
        return "ended"
    return "paused" if reminder.paused else "active"


def local_time(at: float, zone: str) -> str:
    """Return the time on the clocks of a zone; of one that this machine does not know, in UTC."""
    try:
        tz = time_zone(zone)
    except BadInputError:
        return f"{datetime.fromtimestamp(at, time_zone('UTC')):%Y-%m-%d %H:%M} UTC"
    return f"{datetime.fromtimestamp(at, tz):%Y-%m-%d %H:%M}"


def reminder_json(reminder: Reminder) -> dict[str, Any]:
    """Return every field, `state`, and `next_local`: the time on the user's clocks."""
    shown = {name: getattr(reminder, name) for name in Reminder.__struct_fields__}
    plain: dict[str, Any] = msgspec.to_builtins(
        shown | {"fields": without_files(reminder.fields)}, builtin_types=()
    )
    local = None if reminder.next_at is None else local_time(reminder.next_at, reminder.zone)
    return plain | {"state": state_of(reminder), "next_local": local}
