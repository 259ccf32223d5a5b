"""What the scripts are told and what they answer: messages, settlements and turns as Lua knows them, and back."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.model import (
    ChatId,
    Claim,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Record,
    Refused,
    Settlement,
    State,
    TicketId,
    Unknown,
    Unreachable,
)
from tidegate.outbox.lanes import HIGH, LOW, NORMAL, URGENT
from tidegate.outbox.packing import encode, pack, unpack
from tidegate.outbox.reasons import Facts
from tidegate.outbox.transitions import CRASHES_ALLOWED, after_call
from tidegate.pacing.rules import Rules, cost_of, family_of

LEVELS: Final = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}


class Item(msgspec.Struct, omit_defaults=True):
    """A message to put: what the schedule has to know of it. Its body goes beside."""

    id: str
    bot: str
    chat: str
    kind: str
    level: int
    cost: int
    paid: bool = False
    urgent_as: str | None = None
    due: float | None = None
    expires: float | None = None
    park: bool = False
    dedup: str | None = None
    dedup_for: float = 0.0
    coalesce: str | None = None


class Said(msgspec.Struct, omit_defaults=True):
    """How a call ended: what follows for the message, its slots, its chat and its bot."""

    id: str
    token: int
    age: float = -1.0
    sent: bool = False
    answered: bool = False
    state: str = ""
    attempts: int = -1
    delay: float = -1.0
    reason: str | None = None
    description: str | None = None
    result: int | None = None  # which of the texts beside
    refused: float | None = None
    away: float | None = None
    alias: str | None = None
    whole_chat: bool = False


class AskedTurn(msgspec.Struct, omit_defaults=True):
    id: str
    bot: str
    chat: str
    kind: str
    level: int
    cost: int
    paid: bool = False
    waits: bool = False


class Told(msgspec.Struct):
    """A message as a script tells of it. `body` and `result` are the numbers of the texts beside."""

    id: TicketId
    state: State
    created: float
    body: int
    attempts: int = 0
    crashes: int = 0
    settled: float | None = None
    reason: str | None = None
    description: str | None = None
    result: int | None = None
    number: int = 0


class Settled(msgspec.Struct):
    place: int  # of the settlement, from 1
    state: State
    created: float
    attempts: int = 0
    crashes: int = 0
    settled: float | None = None
    reason: str | None = None
    description: str | None = None


class Answer(msgspec.Struct):
    """Of any script; each fills in what it has to say."""

    tickets: list[tuple[TicketId, int]] = []  # 1 if it is fresh
    claims: list[tuple[int, int, int, str]] = []  # body, token, attempt, chat
    settled: list[Settled] = []
    granted: dict[str, int] = {}  # turns of this process, and their tokens
    lost: list[str] = []
    delay: float | None = None
    more: bool = False  # is due than one step may do
    ended: list[Told] = []
    found: list[Told] = []
    count: int = 0
    counts: dict[str, int] | list[int] = []
    wait: float = 0.0
    why: Facts | None = None
    cursor: str = "0"


def terms(me: str, rules: Rules, *, lease: float, keep: float, longest_wait: float) -> bytes:
    """What every script is told: who asks, and the limits of that process."""
    return encode(
        {
            "me": me,
            "bot": _pair(rules.bot),
            "private": _pair(rules.private),
            "group": _pair(rules.group),
            "paid": _pair(rules.paid),
            "actions": [_pair(rate) for rate in rules.actions],
            "lease": lease,
            "keep": keep,
            "longest_wait": longest_wait,
            "crashes": CRASHES_ALLOWED,
        }
    )


def items(messages: Sequence[Message], rules: Rules) -> list[bytes]:
    """The arguments of `put`."""
    return [encode([_item(message, rules) for message in messages]), *map(pack, messages)]


def _item(message: Message, rules: Rules) -> Item:
    family, bot, chat = family_of(message.method), str(message.bot), str(message.chat_id)
    item = Item(
        message.id,
        bot,
        chat,
        rules.kind(family),
        LEVELS[message.priority],
        0 if family == "free" else cost_of(message.method, message.params),
        bool(message.params.get("allow_paid_broadcast")),
    )
    if message.urgent:
        item.level, item.urgent_as = URGENT, message.priority
    item.due, item.expires = message.not_before, message.expires_at
    item.park = message.on_unknown == "park"
    if message.dedup_key is not None:
        item.dedup, item.dedup_for = f"{bot}/{message.dedup_key}", message.dedup_for
    if message.coalesce_key is not None:
        item.coalesce = f"{bot}/{chat}/{message.coalesce_key}"
    return item


def said_of(settlements: Sequence[Settlement]) -> list[bytes]:
    """The arguments of `settle`."""
    results: list[bytes] = []
    said = [_said(settlement, results) for settlement in settlements]
    return [encode(said), *results]


def _said(settlement: Settlement, results: list[bytes]) -> Said:
    claim, outcome = settlement.claim, settlement.outcome
    step = after_call(claim.message, claim.attempt - 1, outcome)
    said = end_of(claim.message.id, claim.token, claim.message.chat_id, outcome, settlement.age)
    said.state, said.attempts, said.delay = step.state, step.attempts, step.delay
    said.reason, said.description = step.reason, step.description
    if isinstance(outcome, Delivered) and outcome.result is not None:
        results.append(encode(outcome.result))
        said.result = len(results)
    return said


def end_of(entry: str, token: int, chat_id: ChatId, outcome: Outcome, age: float) -> Said:
    """What the end of a call, of a message or in a turn, means for everybody."""
    sent = not isinstance(outcome, NotSent | Unreachable)
    answered = sent and not isinstance(outcome, Unknown)
    said = Said(entry, token, max(0.0, age), sent, answered)
    if isinstance(outcome, Refused):
        said.refused = outcome.retry_after
    elif isinstance(outcome, Unreachable):
        said.away, said.reason = outcome.wait, outcome.reason
    elif isinstance(outcome, Migrated):
        said.alias = str(outcome.chat_id)
    elif isinstance(outcome, Dead):
        said.whole_chat, said.reason, said.description = outcome.whole_chat, outcome.reason, outcome.description
    elif isinstance(outcome, Delivered):
        said.alias = _learned_name(chat_id, outcome.result)
    return said


def _learned_name(name: ChatId, result: object) -> str | None:
    """An @name and its number are one lane once an answer has told that they are."""
    chat = result.get("chat") if isinstance(name, str) and isinstance(result, dict) else None
    return str(chat["id"]) if isinstance(chat, dict) and isinstance(chat.get("id"), int) else None


class Reply:
    """What a script has answered."""

    def __init__(self, raw: list[bytes]) -> None:
        self.answer = _answers.decode(raw[0])
        self._texts = raw

    def claims(self, granted_at: float) -> list[Claim]:
        return [
            Claim(self._addressed(body, chat), token, attempt, granted_at)
            for body, token, attempt, chat in self.answer.claims
        ]

    def _addressed(self, body: int, chat: str) -> Message:
        message = unpack(self._texts[body])
        if str(message.chat_id) != chat:  # it migrated, or its number is known by now
            message = msgspec.structs.replace(message, chat_id=chat_of(chat))
        return message

    def records(self, told: Sequence[Told]) -> list[Record]:
        return [self.record(one) for one in told]

    def record(self, told: Told) -> Record:
        return Record(
            message=unpack(self._texts[told.body]),
            state=told.state,
            created_at=told.created,
            attempts=told.attempts,
            crashes=told.crashes,
            settled_at=told.settled,
            reason=told.reason,
            description=told.description,
            result=None if told.result is None else msgspec.msgpack.decode(self._texts[told.result]),
        )


def settled_record(settlement: Settlement, settled: Settled) -> Record:
    outcome = settlement.outcome
    return Record(
        message=settlement.claim.message,
        state=settled.state,
        created_at=settled.created,
        attempts=settled.attempts,
        crashes=settled.crashes,
        settled_at=settled.settled,
        reason=settled.reason,
        description=settled.description,
        result=outcome.result if isinstance(outcome, Delivered) else None,
    )


def chat_of(text: str) -> ChatId:
    return text if text.startswith("@") else int(text)


def _pair(rate: Rate) -> tuple[int, float]:
    return rate.count, rate.seconds


_answers: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Answer)
