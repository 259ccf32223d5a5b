"""Messages, settlements and turns as the Lua scripts of the outbox read and write them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidegate.model import (
    BotId,
    BotLimits,
    ChatId,
    Claim,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Probe,
    Rate,
    Record,
    Refused,
    Settlement,
    State,
    TicketId,
    Unknown,
    Unreachable,
    shows_that_bot_sends,
)
from tidegate.outbox import lanes, schedule, shares
from tidegate.outbox.dispatcher import ALIASES_KEPT
from tidegate.outbox.flood_control import FULL_FOR_WINDOWS
from tidegate.outbox.lanes import HIGH, LOW, NORMAL, URGENT
from tidegate.outbox.reasons import WaitFacts
from tidegate.outbox.transitions import (
    AFTER_CRASHES,
    CRASHES_ALLOWED,
    SUSPECT_CRASHES,
    UNREADABLE,
    after_call,
    outage_in,
)
from tidegate.pacing.rules import Rules, cost_of, family_of
from tidegate.pacing.window import part_of_burst
from tidegate.stores.message_codec import (
    UnreadableBody,
    decode_result,
    encode,
    encode_result,
    pack,
    read_body,
    stand_in,
    storable_text,
)
from tidegate.stores.redis.scripts import LEARNED_CONSTANTS, load_scripts

# In the order in which the scripts take them. All of a partition are in one slot of a cluster.
OUTBOX_KEYS: Final = (
    "meta",
    "counts",
    "messages",
    "turns",
    "lanes",
    "pools",
    "bots",
    "queue",
    "ready",
    "timers",
    "leases",
    "active",
    "resting",
    "ended",
    "letters",
    "dedup",
    "coalesce",
    "aliases",
    "learned",
    "wake",
    "channel",
    "processes",
    "claimed",
    "crashed",
    "suspects",
    "bot_counts",
    "ages",
    "order",
)
TURN_PREFIX: Final = "turn/"  # the ids of turns begin with it
OPEN_COUNT_PREFIX: Final = "open:"  # before a bot's id: the name of the count of its unsettled messages
# The counts of a bot that say how many messages there are; the others say how many there have been.
COUNTED_ANEW: Final = ("high", "normal", "low", "retry", "sending", "dead", "parked")
PROCESS_GONE_AFTER: Final = 30.0  # seconds without a heartbeat
OUTBOX_SCRIPTS: Final = load_scripts(
    "outbox",
    OUTBOX_KEYS,
    shared=(
        "shared/window",
        "shared/learned",
        "outbox/shared/step",
        "outbox/shared/lanes",
        "outbox/shared/shares",
        "outbox/shared/flood",
        "outbox/shared/schedule",
        "outbox/shared/messages",
        "outbox/shared/order",
    ),
    constants=LEARNED_CONSTANTS
    | {
        "LEVELS": {name: getattr(lanes, name) for name in ("HIGH", "NORMAL", "LOW", "URGENT", "TURN")},
        "STRIDES": [lanes.STRIDES[level] for level in (HIGH, NORMAL, LOW)],
        "SLACK": shares.SLACK,
        "SKIPS_BEFORE_RESERVATION": schedule.LINE_SKIPS_BEFORE_RESERVATION,
        "RESERVATION_WINDOWS": schedule.RESERVATION_WINDOWS,
        "SWEEP_WITHIN": schedule.SWEEP_WITHIN,
        "FULL_FOR_WINDOWS": FULL_FOR_WINDOWS,
        "ALIASES_KEPT": ALIASES_KEPT,
        "CRASHES_ALLOWED": CRASHES_ALLOWED,
        "SUSPECT_CRASHES": SUSPECT_CRASHES,
        "AFTER_CRASHES": AFTER_CRASHES,
        "TURN_PREFIX": TURN_PREFIX,
        "OPEN_COUNT_PREFIX": OPEN_COUNT_PREFIX,
        "COUNTED_ANEW": dict.fromkeys(COUNTED_ANEW, 1),
        "PROCESS_GONE_AFTER": PROCESS_GONE_AFTER,
        "UNREADABLE": UNREADABLE,
        "DAMAGED_RECORD": "its record in Redis is damaged",
    },
)
LEVEL_OF_PRIORITY: Final = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}


class RareMessageFields(msgspec.Struct, omit_defaults=True):
    """Fields that few messages have."""

    paid: bool = False
    urgent_as: str | None = None
    due: float | None = None
    expires: float | None = None
    park: bool = False
    dedup: str | None = None
    dedup_for: float = 0.0
    coalesce: str | None = None


class RareSettlementFields(msgspec.Struct, omit_defaults=True):
    """Consequences that few settlements have, beside the next state."""

    reason: str | None = None
    description: str | None = None
    result: int | None = None  # the number of a text beside
    refused: float | None = None
    away: float | None = None
    obstacle: str | None = None
    doubtful: bool = False  # an answer that does not show that its bot sends
    alias: str | None = None
    whole_chat: bool = False
    again: bool = False  # Redis may have heard it before


# id, bot, chat, kind, level, cost
PutItem = tuple[str, str, str, str, int, int, RareMessageFields | Literal[False]]
# id, token, age, sent, answered, state, attempts, delay
SettleItem = tuple[str, int, float, bool, bool, str, int, float, RareSettlementFields | Literal[False]]


class TurnEnd(msgspec.Struct, omit_defaults=True):
    """How a turn ended."""

    id: str
    token: int
    age: float = -1.0
    sent: bool = False
    answered: bool = False
    refused: float | None = None
    away: float | None = None
    obstacle: str | None = None
    doubtful: bool = False
    reason: str | None = None
    description: str | None = None
    alias: str | None = None
    whole_chat: bool = False


class TurnRequest(msgspec.Struct, omit_defaults=True):
    id: str
    bot: str
    chat: str
    kind: str
    level: int
    cost: int
    paid: bool = False
    waits: bool = False


class ReportedMessage(msgspec.Struct):
    """A message as a script reports it. `body` and `result` are the numbers of texts beside the reply."""

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
    lane: str = "0/send/0"
    chat: str | None = None  # as it was put, if the lane has another id


class ReportedOutage(msgspec.Struct):
    """An outage that began in this step, or one that ended: then it says how long it lasted."""

    bot: BotId
    waiting: int
    obstacle: str = ""
    lasted: float | None = None


class ReportedRefusal(msgspec.Struct):
    """A 429 that this step has heard, and what it has closed."""

    bot: BotId
    chat: str
    seconds: float
    whole_bot: bool = False


class ReportedLimit(msgspec.Struct):
    """A learned limit that this step has changed; without a chat that of the bot. Counts and seconds."""

    bot: BotId
    rule: tuple[int, float]
    before: tuple[int, float]
    after: tuple[int, float]
    restored: bool = False
    chat: str | None = None


class ScriptReply(msgspec.Struct):
    """The reply of any step; each fills in its own fields."""

    tickets: list[tuple[TicketId, int]] = []  # 1 if it is new
    # body, token, attempt, id, lane, and the chat as it was put if the lane has another
    claims: list[tuple[int, int, int, TicketId, str, str | Literal[False], Probe | Literal[False]]] = []
    # place, created, crashes, and the state if the outcome did not decide it
    settled: list[tuple[int, float, int, State | Literal[False]]] = []
    now: float = 0.0
    granted: dict[str, int] = {}  # turns of this process, and their tokens
    lost: list[str] = []
    delay: float | None = None
    others: bool = False  # messages wait for a worker that serves their bots
    more: bool = False  # more is due than one step may do
    ended: list[ReportedMessage] = []
    found: list[ReportedMessage] = []
    count: int = 0
    counts: dict[str, int] | list[tuple[str, int]] = {}
    of_bots: list[tuple[BotId, str, int]] = []  # counts of bots by name
    oldest: list[tuple[BotId, float]] = []  # since when the oldest message of a bot may go
    wait: float = 0.0
    why: WaitFacts | None = None
    cursor: str = "0"
    lanes: list[str] = []
    # bot, state, reason, how many, when the first and the last ended, and the id of the last
    letters: list[tuple[str, State, str | Literal[False], int, float, float, TicketId]] = []
    closed: list[tuple[str, float, str]] = []  # a lane or a bot, seconds, why a bot cannot send
    own: dict[str, tuple[int, float]] | None = None  # the limits that a bot had
    unsettled: int = 0  # messages of all bots, after this step
    epoch: str = ""  # of the data in Redis
    emptied: bool = False  # the data that this process knew is gone
    noted: bool = False  # another process has noted that before
    outages: list[ReportedOutage] = []
    refusals: list[ReportedRefusal] = []
    limits: list[ReportedLimit] = []


def script_terms(
    me: str, rules: Rules, *, lease: float, keep: float, longest_wait: float, longest_call: float
) -> bytes:
    """Return an argument of every step: the name of the process, its limits and lease."""
    return encode(
        {
            "me": me,
            "bot": _pair(rules.bot),
            "burst": rules.burst,
            "private": [*_replies(rules), _pair(rules.private)],
            "group": [_pair(rules.group)],
            "paid": _pair(rules.paid),
            "actions": [_pair(rate) for rate in rules.actions],
            "lease": lease,
            "keep": keep,
            "longest_wait": longest_wait,
            "longest_call": longest_call,
        }
    )


def put_arguments(messages: Sequence[Message], rules: Rules) -> list[bytes]:
    """Return the arguments of `put`."""
    return [encode([_put_item(message, rules) for message in messages]), *map(pack, messages)]


def _put_item(message: Message, rules: Rules) -> PutItem:
    method, params = message.method, message.params
    family = family_of(method)
    bot, chat = str(message.bot), str(message.chat_id)
    level = URGENT if message.urgent else LEVEL_OF_PRIORITY[message.priority]
    cost = 0 if family == "free" else cost_of(method, params)
    rare = RareMessageFields(
        bool(params.get("allow_paid_broadcast")),
        message.priority if message.urgent else None,
        message.not_before,
        message.expires_at,
        message.on_unknown == "park",
    )
    if message.dedup_key is not None:
        rare.dedup, rare.dedup_for = f"{bot}/{message.dedup_key}", message.dedup_for
    if message.coalesce_key is not None:
        rare.coalesce = f"{bot}/{chat}/{message.coalesce_key}"
    found: RareMessageFields | Literal[False] = False if rare == _NO_RARE_FIELDS else rare
    return message.id, bot, chat, rules.kind(family), level, cost, found


def settle_arguments(
    settlements: Sequence[Settlement], unsure: Collection[int] = (), *, sent: bool = True
) -> list[bytes]:
    """Return the arguments of `settle`. `unsure`: tokens of settlements whose answers were lost.

    Without `sent` no call was made, whatever the outcomes say.
    """
    results: list[bytes] = []
    items = [_settle_item(one, results, again=one.claim.token in unsure, made=sent) for one in settlements]
    return [encode(items), *results]


def _settle_item(settlement: Settlement, results: list[bytes], *, again: bool, made: bool) -> SettleItem:
    claim, outcome = settlement.claim, settlement.outcome
    step = after_call(claim.message, claim.attempt - 1, outcome, settlement.max_attempts)
    rare = RareSettlementFields(storable_text(step.reason), storable_text(step.description), again=again)
    if isinstance(outcome, Delivered):
        rare.alias = _learned_chat_id(claim.message.chat_id, outcome.result)
        if (result := encode_result(outcome.result)) is not None:
            results.append(result)
            rare.result = len(results)
    else:
        _add_consequences(rare, outcome)
    sent, answered = _sent_and_answered(outcome) if made else (False, False)
    age = max(0.0, settlement.age)
    return claim.message.id, claim.token, age, sent, answered, step.state, step.attempts, step.delay, rare


def _add_consequences(fields: "RareSettlementFields | TurnEnd", outcome: Outcome) -> None:
    """Add the consequences of an outcome for its chat and its bot."""
    fields.doubtful = not shows_that_bot_sends(outcome)
    if (held := outage_in(outcome)) is not None:
        fields.away, fields.obstacle = held
    if isinstance(outcome, Refused):
        fields.refused = outcome.retry_after
    elif isinstance(outcome, Migrated):
        fields.alias = str(outcome.chat_id)
    elif isinstance(outcome, Dead):
        fields.whole_chat = outcome.whole_chat
        fields.reason = storable_text(outcome.reason)
        fields.description = storable_text(outcome.description)


def _sent_and_answered(outcome: Outcome) -> tuple[bool, bool]:
    """Return whether the call was sent, and whether it was answered."""
    sent = not isinstance(outcome, NotSent | Unreachable)
    return sent, sent and not isinstance(outcome, Unknown)


def turn_end(turn: str, token: int, chat_id: ChatId, outcome: Outcome, age: float) -> TurnEnd:
    sent, answered = _sent_and_answered(outcome)
    end = TurnEnd(turn, token, max(0.0, age), sent, answered)
    if isinstance(outcome, Delivered):
        end.alias = _learned_chat_id(chat_id, outcome.result)
    else:
        _add_consequences(end, outcome)
    return end


def _learned_chat_id(name: ChatId, result: object) -> str | None:
    """Return the id of a chat addressed by @name, if the answer shows it: both are one lane from then on."""
    chat = result.get("chat") if isinstance(name, str) and isinstance(result, dict) else None
    return str(chat["id"]) if isinstance(chat, dict) and isinstance(chat.get("id"), int) else None


class UnreadableClaim(NamedTuple):
    """A claim whose message cannot be decoded; its message is a stand-in."""

    claim: Claim
    body: UnreadableBody


class OutboxReply:
    """The reply of a step of the outbox, with the texts beside it."""

    def __init__(self, raw: list[bytes]) -> None:
        self.answer = _reply_decoder.decode(raw[0])
        self._texts = raw

    def claims(self, granted_at: float) -> tuple[list[Claim], list[UnreadableClaim]]:
        """Return the claims whose messages can be read, and the others."""
        claims, unreadable = list[Claim](), list[UnreadableClaim]()
        for body, token, attempt, ticket, lane, put_chat, probe in self.answer.claims:
            bot, chat = bot_and_chat(lane)
            put_for = parse_chat_id(put_chat) if put_chat else chat
            message = read_body(self._texts[body], ticket, bot, put_for)
            if isinstance(message, UnreadableBody):
                stand = stand_in(ticket, bot, put_for)
                unreadable.append(UnreadableClaim(Claim(stand, token, attempt, granted_at), message))
                continue
            if chat != put_for:  # it has migrated, or its id is known by now
                message = msgspec.structs.replace(message, chat_id=chat)
            claims.append(Claim(message, token, attempt, granted_at, probe or None))
        return claims, unreadable

    def records(self, reported: Sequence[ReportedMessage]) -> list[Record]:
        return [self.record(one) for one in reported]

    def record(self, reported: ReportedMessage) -> Record:
        message, description, body = self.message(reported), reported.description, None
        if isinstance(message, UnreadableBody):
            description, body = description or message.description, self._texts[reported.body]
            message = stand_in(reported.id, *_put_for(reported))
        return Record(
            message=message,
            state=reported.state,
            created_at=reported.created,
            attempts=reported.attempts,
            crashes=reported.crashes,
            settled_at=reported.settled,
            reason=reported.reason,
            description=description,
            result=None if reported.result is None else decode_result(self._texts[reported.result]),
            body=body,
        )

    def message(self, reported: ReportedMessage) -> Message | UnreadableBody:
        return read_body(self._texts[reported.body], reported.id, *_put_for(reported))


def _put_for(reported: ReportedMessage) -> tuple[BotId, ChatId]:
    bot, chat = bot_and_chat(reported.lane)
    return bot, parse_chat_id(reported.chat) if reported.chat else chat


def settled_record(
    settlement: Settlement, created: float, crashes: int, otherwise: State | Literal[False], now: float
) -> Record:
    """Return the record after a settlement. `otherwise`: the state, if the outcome did not decide it."""
    claim, outcome = settlement.claim, settlement.outcome
    step = after_call(claim.message, claim.attempt - 1, outcome, settlement.max_attempts)
    state = otherwise or step.state
    return Record(
        message=claim.message,
        state=state,
        created_at=created,
        attempts=step.attempts,
        crashes=crashes,
        settled_at=None if state in {State.QUEUED, State.RETRY} else now,
        reason=None if otherwise else step.reason,
        description=None if otherwise else step.description,
        result=outcome.result if isinstance(outcome, Delivered) else None,
    )


def parse_chat_id(text: str) -> ChatId:
    try:
        return int(text)
    except ValueError:
        return text  # an @name, or damaged


def bot_and_chat(lane: str) -> tuple[BotId, ChatId]:
    bot, _, chat = lane.split("/", 2)
    return BotId(int(bot)), parse_chat_id(chat)


def encode_limits(limits: BotLimits) -> bytes:
    return encode({name: _pair(rate) for name, rate in limits.set_ones.items()})


def bot_limits(pairs: Mapping[str, tuple[int, float]] | None) -> BotLimits:
    return BotLimits(**{name: Rate(*pair) for name, pair in (pairs or {}).items()})


def _pair(rate: Rate) -> tuple[int, float]:
    return rate.count, rate.seconds


def _replies(rules: Rules) -> list[tuple[int, float, int]]:
    """The limit of replies, if there is one; its third value marks it as a burst."""
    return [] if rules.replies is None else [(*_pair(rules.replies), part_of_burst(rules.replies.count))]


_NO_RARE_FIELDS: Final = RareMessageFields()
_reply_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(ScriptReply)
