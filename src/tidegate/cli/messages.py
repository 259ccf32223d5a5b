"""Selection of messages by operators' commands, and how messages are shown."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import printable
from tidegate.cli.times import moment, short_moment
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Message, Record, State, TicketId
from tidegate.ops.reports import WAITING, record_json, unreadable_json
from tidegate.outbox.admission import check_chat
from tidegate.outbox.port import Outbox

LETTERS = frozenset({State.DEAD, State.PARKED})
CANDIDATES: Final = 5  # ids that are listed if a shortened one is not clear
ID_DIGITS: Final = 8  # of the number of a message in its id
_CHAT: Final = re.compile(r"-?\d{3,16}|@\w+", re.ASCII)  # what may have been meant for a chat, not for an id
T = TypeVar("T")
DUE_ASKED: Final = 20  # messages at most for which the sender is asked when their next try is
COUNTED = 10_000  # counted at most; above it is "more than"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of messages. `before`: only those put or ended before that time."""

    states: frozenset[State]
    bot: BotId | None = None
    chat_id: ChatId | None = None
    reason: str | None = None
    before: float | None = None

    async def records(self, outbox: Outbox, limit: int) -> list[Record]:
        return await outbox.records(**msgspec.structs.asdict(self), limit=limit)

    async def how_many(self, outbox: Outbox) -> int:
        """Count the messages, up to COUNTED + 1."""
        return len(await self.records(outbox, COUNTED + 1))


def bot_of(number: int | None) -> BotId | None:
    return None if number is None else BotId(number)


def chat_of(text: str | None, option: str = "--chat") -> ChatId | None:
    try:
        return None if text is None else check_chat(text)
    except BadInputError as error:
        raise BadInputError(f"{option}: {error}") from error


async def find_records(outbox: Outbox, ids: Sequence[str]) -> list[Record]:
    """Return the records of these ids, each once. An id may be shortened.

    Raises BadInputError for one that is unknown, or that is the beginning of several.
    """
    found = [await _find_record(outbox, ticket) for ticket in dict.fromkeys(ids)]
    return list({record.message.id: record for record in found}.values())


async def _find_record(outbox: Outbox, ticket: str) -> Record:
    record = await outbox.find(TicketId(ticket))
    if record is None and (known := await _whole_ids(outbox, ticket)):
        record = await outbox.find(only_one(ticket, known))
    if record is None:
        chat = f" --chat {ticket}" if _CHAT.fullmatch(ticket) else ""
        raise BadInputError(
            f"message {ticket} is not known here: it was never put, or ended too long ago; "
            f"see tidegate queue list{chat} --state any"
        )
    return record


async def _whole_ids(outbox: Outbox, short: str) -> list[TicketId]:
    """Return the ids that begin so. Both parts may be shortened: `9f3a-1b` is `9f3a41c2d5e6-0000001b`."""
    process, dash, number = short.partition("-")
    known = await outbox.ids(short, limit=CANDIDATES + 1) if short else []
    if known or not process or not (dash and number):
        return known
    return await outbox.ids(process, f"-{number:0>{ID_DIGITS}}", limit=CANDIDATES + 1)


def only_one(short: str, known: Sequence[T]) -> T:
    """Return what a shortened id means. Raises BadInputError that lists the candidates if it is not clear."""
    if len(known) == 1:
        return known[0]
    more = " and others" if len(known) > CANDIDATES else ""
    named = ", ".join(map(str, known[:CANDIDATES]))
    raise BadInputError(f"{short} is the beginning of {named}{more}: write more of it")


def amount(count: int, thing: str, things: str | None = None) -> str:
    """Return `1 message`, `3 messages`."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def counted(count: int, thing: str) -> str:
    """Return the count of a selection in words, such as `more than 10,000 messages`."""
    return f"more than {COUNTED:,} {thing}s" if count > COUNTED else amount(count, thing)


STYLES = {State.DEAD: "red", State.PARKED: "yellow", State.DELIVERED: "green", State.SENDING: "cyan"}
TIMES = ("created_at", "not_before", "expires_at", "settled_at")


def unreadable_lines(body: bytes) -> list[RenderableType]:
    """Show how a stored body begins."""
    known = unreadable_json(body)
    shown = "\n".join(f"  {printable(known[name])}" for name in ("first_text", "first_bytes"))
    return [Text(f"body, {known['size']:,} bytes, begins", style="dim"), Text(shown)]


def record_table(records: Sequence[Record], now: float, due: Mapping[TicketId, float] | None = None) -> Table:
    """Show one row each. In a terminal of 80 columns the texts are cut short. `due`: when some may go."""
    several = len({record.message.bot for record in records}) > 1
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for name in ("id", "state", *(["bot"] if several else []), "chat", "when", *(["due"] if due else [])):
        rows.add_column(name, no_wrap=True)
    rows.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for record in records:
        message, at = record.message, record.settled_at or record.created_at
        what = f"{record.reason}: {summary(message)}" if record.reason else summary(message)
        rows.add_row(
            message.id,
            Text(record.state, STYLES.get(record.state, "")),
            *([str(message.bot)] if several else []),
            printable(message.chat_id),
            short_moment(at, now),
            *([short_moment(due[message.id], now) if message.id in due else ""] if due else []),
            Text(printable(what)),
        )
    return rows


async def due_times(outbox: Outbox, records: Sequence[Record], now: float) -> dict[TicketId, float]:
    """When messages may go that wait for their time or for their next try, as far as that is known."""
    due: dict[TicketId, float] = {}
    asked = 0
    for record in records:
        message = record.message
        if record.state in WAITING and message.not_before is not None and message.not_before > now:
            due[message.id] = message.not_before
        elif record.state is State.RETRY and asked < DUE_ASKED:
            asked += 1
            why = await outbox.why(message.id)
            if why is None or why.expected_in is None:
                asked = DUE_ASKED  # no sender answers: asking for each would take long
            else:
                due[message.id] = now + why.expected_in
    return due


def record_details(record: Record, now: float) -> RenderableType:
    """Show every field that is set, one a line."""
    known = record_json(msgspec.structs.replace(record, body=None))
    params, result = known.pop("params"), known.pop("result")
    if record.message.dedup_key is None:
        del known["dedup_for"]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in known.items():
        if value not in (None, False):
            shown = moment(value, now) if name in TIMES else printable(value)
            grid.add_row(name, Text(shown, STYLES.get(record.state, "") if name == "state" else ""))
    parts: list[RenderableType] = [grid]
    for title, value in (("params", params), ("result", result)):
        if value is not None:
            parts += [Text(title, style="dim"), Text(_indented(value))]
    if record.body is not None:
        parts += unreadable_lines(record.body)
    return Group(*parts)


def summary(message: Message) -> str:
    """Return the text of a message, or its method."""
    text = message.params.get("text") or message.params.get("caption")
    shown = str(text) if text else ""
    return shown if message.method == "sendMessage" else f"{message.method} {shown}".rstrip()


def _indented(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(f"  {printable(line)}" for line in text.splitlines())
