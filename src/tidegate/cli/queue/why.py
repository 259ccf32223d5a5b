"""`tidegate queue why`: what a message waits for, or what became of it."""

import re
from typing import Any

from tidegate.cli import terminal
from tidegate.cli.selection import amount, find
from tidegate.cli.stores import using
from tidegate.cli.terminal import printable
from tidegate.cli.times import moment
from tidegate.clock import Clock
from tidegate.model import Record, State, TicketId, Why
from tidegate.outbox.base import Outbox
from tidegate.outbox.redis import looking

LONG = 120.0  # seconds
_IN_SECONDS = re.compile(r"\bin (\d+(?:\.\d+)?) s\b")
NOBODY = "nobody sends: start a worker (tidegate worker)"
WAITS = frozenset({State.QUEUED, State.RETRY})
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


def show(store: str | None, ticket: str, *, as_json: bool) -> None:
    async def look(outbox: Outbox) -> tuple[Record, Why]:
        why = await outbox.why(TicketId(ticket))
        link = getattr(outbox, "link", None)  # of a store in Redis, which does not know by itself who sends
        if why and why.state in WAITS and link is not None and not (await looking.company(link)).delivers:
            why = Why(why.state, (NOBODY, *why.waits_for), None)
        [record] = await find(outbox, [ticket])
        # It may have gone on since it was explained.
        return record, why if why and why.state == record.state else Why(record.state, (), None)

    record, why = using(store, look)
    now = Clock().now()
    if as_json:
        terminal.put_json(report(record, why, now))
    else:
        for line in lines(record, why, now):
            terminal.put_line(line)


def report(record: Record, why: Why, now: float) -> dict[str, Any]:
    """`expected_in` and `expected_at` are None if that depends on someone."""
    expected = why.expected_in if why.state in WAITS else None  # what is being sent has left
    return {
        "id": record.message.id,
        "state": why.state,
        "waits_for": list(why.waits_for),
        "expected_in": expected,
        "expected_at": None if expected is None else now + expected,
        "reason": record.reason,
        "description": record.description,
    }


def lines(record: Record, why: Why, now: float) -> list[str]:
    """For a person: the state, then each thing it waits for, then when."""
    ticket = record.message.id
    stuck = why.state == State.SENDING and bool(why.waits_for) and why.expected_in is None
    if why.state not in WAITS and not stuck:
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
