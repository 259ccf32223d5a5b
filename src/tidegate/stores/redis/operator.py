"""The operator's verbs on the outbox in Redis: any process may look and change."""

import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.events import (
    Ended,
    EventStream,
    LimitChange,
    LimitChanged,
    LimitsSet,
    OutageBegan,
    OutageEnded,
    RefusalHeard,
)
from tidegate.model import BotId, BotLimits, ChatId, Priority, Rate, Record, State, TicketId, Why
from tidegate.outbox.call_counts import CallCounts
from tidegate.outbox.letter_groups import grouped
from tidegate.outbox.limit_states import limit_states
from tidegate.outbox.port import (
    LetterGroup,
    LimitState,
    OutboxOperator,
    OutboxStats,
    ProcessVitals,
    RecordPage,
    StoreHealth,
    stats_of_bots,
)
from tidegate.outbox.reasons import explain
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNREADABLE, UNSETTLED_STATES
from tidegate.pacing.rules import check_limits
from tidegate.stores.message_codec import UnreadableBody, encode, pack, report_unreadable
from tidegate.stores.redis.outbox_codec import (
    COUNTED_ANEW,
    LEVEL_OF_PRIORITY,
    OPEN_COUNT_PREFIX,
    PROCESS_GONE_AFTER,
    TURN_PREFIX,
    OutboxReply,
    ReportedMessage,
    ScriptReply,
    bot_limits,
    encode_limits,
    parse_chat_id,
)
from tidegate.stores.redis.waiters import EndedMessages, RedisSettledWaiters

if TYPE_CHECKING:  # commands read this without the driver
    from tidegate.stores.redis.connection import Argument, RedisConnection
    from tidegate.stores.redis.fallback import OutboxFallback

WAITING_STATES: Final = frozenset({State.QUEUED, State.RETRY})
IDS_PER_STEP: Final = 200
LEASES_EXAMINED: Final = 200
SCANNED: Final = 500  # messages of one step
LOOK_FOR: Final = 0.1  # seconds, for a page of messages
QUEUED_COUNTS: Final = ("high", "normal", "low")
UNSETTLED_COUNTS: Final = frozenset({*QUEUED_COUNTS, State.RETRY, State.SENDING})


class RedisOperator(OutboxOperator):
    """Looks and changes after everything that is due has acted. Spooled messages are found, too."""

    _fallback: "OutboxFallback"

    def __init__(
        self, connection: "RedisConnection", clock: Clock, events: EventStream | None = None
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._events = events or EventStream()
        self._calls = CallCounts(self._events)
        self._waiters = RedisSettledWaiters(clock, self._find_ended)
        # By how much numbers of all bots differ from the sums of each, after a recount: by damaged records.
        self._known_drift: dict[str, int] = {}
        self._closed_bots: dict[BotId, float] = {}  # by a 429, until when (monotonic), as far as it is known

    async def _run(self, step: str, *args: "Argument") -> OutboxReply:
        """Run one step. Messages that it reports as ended go to those who wait for them."""
        try:
            raw = await self.connection.run(step, *args)
        except StoreAwayError:
            self._fallback.failed()
            raise
        self._fallback.answered()
        reply = OutboxReply(raw)
        self._fallback.counted(reply.answer.unsettled)
        for ended in reply.answer.ended:
            record = reply.record(ended)
            if record.reason == UNREADABLE:
                message, body = record.message, reply.message(ended)
                if isinstance(body, UnreadableBody):
                    report_unreadable(message.id, message.bot, message.chat_id, body)
            self._report_end(record)
        for news in reply.answer.outages:  # only the process whose step it was hears of it
            if news.lasted is None:
                self._events.publish(OutageBegan(news.bot, news.obstacle, news.waiting))
            else:
                self._events.publish(OutageEnded(news.bot, news.lasted, news.waiting))
        for refusal in reply.answer.refusals:
            if refusal.whole_bot:
                until, known = self._clock.monotonic() + refusal.seconds, self._closed_bots
                known[refusal.bot] = max(until, known.get(refusal.bot, 0.0))
            self._events.publish(
                RefusalHeard(
                    refusal.bot,
                    refusal.seconds,
                    "bot" if refusal.whole_bot else "chat",
                    parse_chat_id(refusal.chat),
                )
            )
        for limit in reply.answer.limits:
            rule, before, after = (Rate(*pair) for pair in (limit.rule, limit.before, limit.after))
            chat = None if limit.chat is None else parse_chat_id(limit.chat)
            change = LimitChange(rule, before, after, restored=limit.restored)
            self._events.publish(LimitChanged(limit.bot, chat, change))
        return reply

    def _report_end(self, record: Record) -> None:
        self._waiters.ended(record)
        self._events.publish(Ended(record))

    async def _run_until_due_is_done(self, step: str, *args: "Argument") -> OutboxReply:
        """Run a step that looks, again if more was due than one step may do."""
        reply = await self._run(step, *args)
        while reply.answer.more:
            reply = await self._run(step, *args)
        return reply

    async def find(self, ticket: TicketId) -> Record | None:
        spool = self._fallback.spool
        if spool is not None and len(spool) and (message := await spool.find(ticket)) is not None:
            return Record(message=message, state=State.QUEUED, created_at=self._clock.now())
        reply = await self._run_until_due_is_done("find", ticket)
        found = reply.records(reply.answer.found)
        return found[0] if found else None

    async def ids(self, start: str, end: str = "", *, limit: int = 100) -> list[TicketId]:
        await self._run_until_due_is_done("stats")  # what ended too long ago is forgotten first
        pattern = f"{_literally(start)}*{_literally(end)}"
        found, cursor = set[TicketId](), b"0"
        while True:
            page = ("HSCAN", self.connection.key("messages"), cursor, "MATCH", pattern, "COUNT", SCANNED)
            cursor, fields = await self.connection.command(*page)
            found.update(TicketId(name.decode()) for name in _pairs(fields))
            if int(cursor) == 0:
                return sorted(found)[:limit]

    async def find_by_key(self, bot: BotId, dedup_key: str) -> TicketId | None:
        """Find a message by its key, except in the spool: Redis has not accepted those yet."""
        stored = await self.connection.command("HGET", self.connection.key("dedup"), f"{bot}/{dedup_key}")
        if stored is None:
            return None
        ticket, _ = msgspec.msgpack.decode(stored, type=tuple[str, float])
        return TicketId(ticket)

    async def settled(self, ticket: TicketId) -> Record:
        record = await self.find(ticket)
        if record is None:
            raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
        return record if record.state not in UNSETTLED_STATES else await self._waiters.end_of(ticket)

    async def _find_ended(self, tickets: list[TicketId]) -> EndedMessages:
        # The spool first: what leaves it in this moment is in Redis by then.
        spool = self._fallback.spool
        spooled = await spool.known(tickets) if spool is not None and len(spool) else set()
        reply = await self._run_until_due_is_done("find", *tickets)
        found = reply.answer.found
        ended = [one for one in found if one.state not in UNSETTLED_STATES]
        gone = set(tickets).difference(spooled, (one.id for one in found))
        return EndedMessages(reply.records(ended), gone, reply.answer.delay)

    async def why(self, ticket: TicketId) -> Why | None:
        facts = (await self._run_until_due_is_done("why", ticket)).answer.why
        return None if facts is None else explain(facts)

    async def drained(self, bot: BotId | None = None) -> None:
        while self._fallback.takes_puts or await self._unsettled(bot):
            await self._waiters.pause()

    async def _unsettled(self, bot: BotId | None) -> int:
        counts: dict[str, int] = dict((await self._run_until_due_is_done("stats")).answer.counts)
        if bot is not None:
            return counts.get(f"{OPEN_COUNT_PREFIX}{bot}", 0)
        return sum(count for name, count in counts.items() if name.startswith(OPEN_COUNT_PREFIX))

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        letters = states & DEAD_LETTER_STATES
        return await self.records(bot=bot, chat_id=chat_id, reason=reason, states=letters, limit=limit)

    async def letters_by_reason(
        self, bot: BotId | None = None, ended_by: float | None = None
    ) -> list[LetterGroup]:
        parts: list[LetterGroup] = []
        wanted = ("" if bot is None else str(bot), "" if ended_by is None else repr(ended_by))
        for first in itertools.count(0, SCANNED):
            answer = (await self._run_until_due_is_done("letters_by_reason", first, SCANNED, *wanted)).answer
            parts += [
                LetterGroup(
                    bot=BotId(int(owner)),
                    state=state,
                    reason=reason or None,
                    count=count,
                    first_at=first_at,
                    last_at=last_at,
                    latest=latest,
                )
                for owner, state, reason, count, first_at, last_at, latest in answer.letters
            ]
            if answer.count < SCANNED:
                break
        return grouped(parts)

    async def records(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        before: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        wanted = _Filter(bot, chat_id, states, reason, before)
        return (await self._page(wanted, "", limit, math.inf)).records

    async def record_page(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        """Dead letters are in the order of their ends, others in that of their puts.

        A list with messages of an older version takes longer once: some seconds for a million.
        """
        number, _, _ = cursor.partition("+")  # cursors of an older version have an id, too
        if cursor and not _is_number(number):
            raise BadInputError("the cursor is not one of this list")
        return await self._page(_Filter(bot, chat_id, states, reason), number, limit, LOOK_FOR)

    async def _page(self, wanted: "_Filter", cursor: str, limit: int, patience: float) -> RecordPage:
        """Look for messages in short steps, between which others are served, until patience is over."""
        counts = dict((await self._run_until_due_is_done("stats")).answer.counts)
        if wanted.has_none_in(counts):
            return RecordPage([])
        filters, order = encode(wanted.fields()), "letters" if wanted.are_letters else ""
        needed: Argument = ""  # up to which number messages must have their places
        until = self._clock.monotonic() + patience
        found: list[tuple[OutboxReply, ReportedMessage]] = []
        while len(found) <= limit:  # one more than is wanted: then there are others
            left = limit + 1 - len(found)
            reply = await self._run("page", cursor or "0", min(left, SCANNED), filters, order, needed)
            needed = reply.answer.count
            if reply.answer.more:  # messages of an older version are given their places first
                until = self._clock.monotonic() + patience
                continue
            found += [(reply, each) for each in reply.answer.found]
            cursor = reply.answer.cursor
            if not cursor or self._clock.monotonic() >= until:
                break
        if len(found) > limit:
            found, cursor = found[:limit], str(found[limit - 1][1].number)
        return RecordPage([reply.record(each) for reply, each in found], cursor)

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        wanted = {"bot": str(bot), "dedup": f"{bot}/{dedup_prefix}", "bare": True}
        await self._run_until_due_is_done("stats")
        states = {each.id: (each.state, each.reason) async for _, each in self._scan(wanted)}
        return Counter(states.values())

    async def keyed(
        self, bot: BotId, dedup_prefix: str, states: frozenset[State] = frozenset(State)
    ) -> AsyncIterator[TicketId]:
        among = {state.value: True for state in states}
        wanted = {"bot": str(bot), "dedup": f"{bot}/{dedup_prefix}", "states": among, "bare": True}
        await self._run_until_due_is_done("stats")
        async for _, each in self._scan(wanted):
            yield each.id

    async def keyed_records(
        self,
        bot: BotId,
        dedup_prefix: str,
        states: frozenset[State],
        *,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        """A step of the scan may find more than `limit`: the cursor says how many of it were given."""
        at, _, given = cursor.partition("+")
        if cursor and not (_is_number(at) and _is_number(given)):
            raise BadInputError("the cursor is not one of this list")
        among = {state.value: True for state in states}
        wanted = {"bot": str(bot), "dedup": f"{bot}/{dedup_prefix}", "states": among}
        if not cursor:
            await self._run_until_due_is_done("stats")
        reply = await self._run("scan", at or "0", encode(wanted))
        found = sorted(reply.answer.found, key=lambda each: each.number)
        start = int(given or 0)
        records = [reply.record(each) for each in found[start : start + limit]]
        if len(found) > start + limit:
            return RecordPage(records, f"{at or '0'}+{start + limit}")
        after = reply.answer.cursor
        return RecordPage(records, "" if after == "0" else f"{after}+0")

    async def _scan(self, wanted: dict[str, Any]) -> AsyncIterator[tuple[OutboxReply, ReportedMessage]]:
        """Yield messages in no order, some perhaps twice. It takes many short steps, so that nobody waits."""
        filters = encode({name: value for name, value in wanted.items() if value is not None})
        cursor = "0"
        while True:
            reply = await self._run("scan", cursor, filters)
            for found in reply.answer.found:
                yield reply, found
            cursor = reply.answer.cursor
            if cursor == "0":
                return

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        fields = _pairs(await self.connection.command("HGETALL", self.connection.key("learned")))
        learned: dict[tuple[BotId, ChatId | None], Rate] = {}
        for name, rate in fields.items():
            bot, _, chat = name.decode().partition("/")
            count, _, seconds = rate.decode().partition("/")
            learned[BotId(int(bot)), parse_chat_id(chat) if chat else None] = Rate(int(count), float(seconds))
        return learned

    async def stats(self) -> OutboxStats:
        answer = (await self._run_until_due_is_done("stats", "oldest")).answer
        counts = Counter(dict(answer.counts))
        for (_, name), count in self._calls.unstored.items():
            counts[name] += count
        oldest = min((since for _, since in answer.oldest), default=None)
        return OutboxStats.of(counts, oldest, spooled=self._fallback.health().spooled)

    async def stats_by_bot(self) -> dict[BotId, OutboxStats]:
        """Messages that an older version has put are counted first: some seconds for a million, once.

        What has ended (delivered, refused and so on) is counted since this version first wrote to the data.
        """
        answer = (await self._run_until_due_is_done("stats", "bots")).answer
        drift = _drift(answer)
        if drift != self._known_drift:
            await self._run("recount")
            answer = (await self._run_until_due_is_done("stats", "bots")).answer
            self._known_drift = _drift(answer)
        counts = Counter({(bot, name): count for bot, name, count in answer.of_bots})
        counts.update(self._calls.unstored)
        return stats_of_bots(counts, dict(answer.oldest))

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        named, spool = list(ids), self._fallback.spool
        spooled: set[TicketId] = set()
        if spool is not None and len(spool):
            spooled = await spool.cancel(named)
        try:
            # A spooled message may have reached Redis all the same, if only the answer was lost.
            found = await self._count("cancel", named)
        except StoreAwayError:
            if not spooled.issuperset(named):
                raise
            found = 0
        return max(found, len(spooled))

    async def reprioritize(self, ids: Iterable[TicketId], priority: Priority) -> int:
        """Change priorities, except in the spool of a process: Redis does not have those yet."""
        named, count = list(dict.fromkeys(ids)), 0
        for first in range(0, len(named), IDS_PER_STEP):
            reply = await self._run("find", *named[first : first + IDS_PER_STEP])
            changes: list[Argument] = []
            for one in reply.answer.found:
                message = reply.message(one)
                if one.state in WAITING_STATES and not isinstance(message, UnreadableBody):
                    changes += [one.id, pack(msgspec.structs.replace(message, priority=priority))]
            if changes:
                moved = await self._run("reprioritize", LEVEL_OF_PRIORITY[priority], *changes)
                count += moved.answer.count
        return count

    async def replay(self, ids: Iterable[TicketId]) -> int:
        """Queue dead letters again, except those that cannot be decoded: they would only die again."""
        readable: list[TicketId] = []
        named = list(dict.fromkeys(ids))
        for first in range(0, len(named), IDS_PER_STEP):
            reply = await self._run("find", *named[first : first + IDS_PER_STEP])
            found = reply.answer.found
            readable += [one.id for one in found if not isinstance(reply.message(one), UnreadableBody)]
        return await self._count("replay", readable)

    async def drop(self, ids: Iterable[TicketId]) -> int:
        return await self._count("drop", ids)

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        wanted = {"chat": str(chat_id), "bot": None if bot is None else str(bot), "bare": True}
        return await self._count("forget", [each.id async for _, each in self._scan(wanted)])

    async def _count(self, step: str, ids: Iterable[TicketId]) -> int:
        named, count = list(dict.fromkeys(ids)), 0
        for first in range(0, len(named), IDS_PER_STEP):
            count += (await self._run(step, *named[first : first + IDS_PER_STEP])).answer.count
        return count

    async def limits(self, *, chats: bool = True) -> list[LimitState]:
        closures: list[tuple[BotId, ChatId | None, float, str]] = [
            (bot, None, seconds, obstacle) for bot, seconds, obstacle in await self._find_closed_bots()
        ]
        if not chats:
            learned = await self.learned()
            return limit_states(
                closures, {place: rate for place, rate in learned.items() if place[1] is None}
            )
        cursor = "0"
        while True:
            reply = (await self._run("closed_lanes", cursor)).answer
            for lane, seconds, _ in reply.closed:
                bot, _, chat = lane.split("/", 2)
                closures.append((BotId(int(bot)), parse_chat_id(chat), seconds, ""))
            cursor = reply.cursor
            if cursor == "0":
                return limit_states(closures, await self.learned())

    async def _find_closed_bots(self) -> list[tuple[BotId, float, str]]:
        """Return the bots that a 429 has closed or that cannot send, for how many seconds, and why."""
        known = list(_pairs(await self.connection.command("HGETALL", self.connection.key("bots"))))
        found = (await self._run("closed_bots", *known)).answer.closed if known else []
        now = self._clock.monotonic()
        self._closed_bots = {BotId(int(bot)): now + seconds for bot, seconds, _ in found}
        return [(BotId(int(bot)), seconds, obstacle) for bot, seconds, obstacle in found]

    async def open_limits(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        if chat_id is not None:
            await self._run("open_limits", bot, str(chat_id))
            return
        await self._run("open_limits", bot, "")
        for state in await self.limits():
            if state.bot == bot and state.chat_id is not None and state.closed_for > 0:
                await self._run("open_limits", bot, str(state.chat_id))

    async def own_limits(self) -> dict[BotId, BotLimits]:
        found = _pairs(await self.connection.command("HGETALL", self.connection.key("bots")))
        stored = {BotId(int(bot)): msgspec.msgpack.decode(packed) for bot, packed in found.items()}
        # A bot without any field is an empty list: Lua cannot tell it from a table.
        own = {bot: bot_limits(one["own"]) for bot, one in stored.items() if one and "own" in one}
        self._fallback.know_limits(own)
        return own

    async def set_limits(self, bot: BotId, limits: BotLimits) -> None:
        reply = await self._run("set_limits", bot, encode_limits(check_limits(limits)))
        before = bot_limits(reply.answer.own)
        if before != limits:
            self._events.publish(LimitsSet(bot, limits, before))
        cursor = "0"
        while True:  # in short steps: there may be many chats
            cursor = (await self._run("place_lanes", bot, cursor)).answer.cursor
            if cursor == "0":
                break
        await self.own_limits()  # for a time without Redis

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._run("pause", bot, "" if chat_id is None else str(chat_id), 1)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._run("pause", bot, "" if chat_id is None else str(chat_id), 0)


HEALTH_PREFIX: Final = "health/"  # keys that say what is wrong with a process


class OtherProcesses(NamedTuple):
    """The other processes that have the store open, and whether any process delivers."""

    processes: int
    delivers: bool


async def other_processes(connection: "RedisConnection") -> OtherProcesses:
    command, key = connection.command, connection.key
    now, others = await _others(connection)
    # Workers without work note until when they wait for some; the others hold leases. Turns are direct calls.
    waits_until = await command("HGET", key("meta"), "claimers")
    leases = await command("ZRANGEBYSCORE", key("leases"), now, "+inf", "LIMIT", 0, LEASES_EXAMINED)
    busy = any(not lease.startswith(TURN_PREFIX.encode()) for lease in leases)
    return OtherProcesses(len(others), busy or float(waits_until or 0) > now)


async def _others(connection: "RedisConnection") -> tuple[float, set[bytes]]:
    """Return the time in Redis, and the other processes that gave a sign of life lately."""
    seconds, micros = await connection.command("TIME")
    now = int(seconds) + int(micros) / 1e6
    since = now - PROCESS_GONE_AFTER
    here = await connection.command("ZRANGEBYSCORE", connection.key("processes"), since, "+inf")
    return now, {name for name in here if name != connection.me.encode()}


async def tell_health(connection: "RedisConnection", health: StoreHealth) -> None:
    """Tell others the health of this process, if it says anything, until its next sign of life is overdue."""
    key = connection.key(HEALTH_PREFIX + connection.me)
    if health.reasons or health.bots:
        await connection.command("SET", key, encode(health), "EX", int(PROCESS_GONE_AFTER))
    else:
        await connection.command("DEL", key)


async def health_of_others(connection: "RedisConnection") -> StoreHealth | None:
    """Return what other processes say of themselves; None if there are none."""
    _, others = await _others(connection)
    if not others:
        return None
    names = sorted(name.decode() for name in others)
    told = await connection.command("MGET", *(connection.key(HEALTH_PREFIX + name) for name in names))
    all_of_them, bots, vitals = StoreHealth(), set[BotId](), list[ProcessVitals]()
    for name, body in zip(names, told, strict=True):
        if body is None:
            continue
        health = msgspec.msgpack.decode(body, type=StoreHealth)
        bots.update(health.bots)
        vitals += health.vitals
        reasons = [f"process {name}: {reason}" for reason in health.reasons]
        all_of_them = all_of_them.with_notes(reasons) if health.ready else all_of_them.with_problems(reasons)
    return msgspec.structs.replace(all_of_them, bots=tuple(sorted(bots)), vitals=tuple(vitals))


async def paused_bots(connection: "RedisConnection") -> list[BotId]:
    found = _pairs(await connection.command("HGETALL", connection.key("bots")))
    known = {BotId(int(bot)): msgspec.msgpack.decode(stored) for bot, stored in found.items()}
    # A bot without any field is an empty list: Lua cannot tell it from a table.
    return sorted(bot for bot, stored in known.items() if isinstance(stored, dict) and stored.get("paused"))


async def paused_chats(connection: "RedisConnection") -> list[tuple[BotId, ChatId]]:
    """Takes many short steps: every chat that has messages or was written to lately is examined."""
    chats, cursor = set[tuple[BotId, ChatId]](), "0"
    while True:
        reply = OutboxReply(await connection.run("paused_lanes", cursor)).answer
        for lane in reply.lanes:
            bot, _, chat = lane.split("/", 2)
            chats.add((BotId(int(bot)), parse_chat_id(chat)))
        cursor = reply.cursor
        if cursor == "0":
            return sorted(chats, key=lambda chat: (chat[0], str(chat[1])))


def _drift(answer: ScriptReply) -> dict[str, int]:
    """Return by how much the numbers of the bots do not add up to those of all, by name.

    A process of an older version counts for all bots only; one that has changed messages shows here.
    """
    sums, counts = Counter[str](), dict(answer.counts)
    for _, name, count in answer.of_bots:
        sums[name] += count
    found = {name: sums[name] - counts.get(name, 0) for name in COUNTED_ANEW}
    return {name: difference for name, difference in found.items() if difference}


def _literally(text: str) -> str:
    """Return a pattern that matches this text and no other."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)


def _pairs(found: Any) -> Mapping[bytes, bytes]:  # noqa: ANN401  (a hash, as the protocol spells it)
    return found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))


class _Filter(NamedTuple):
    """The filters of a list of messages."""

    bot: BotId | None
    chat_id: ChatId | None
    states: frozenset[State]
    reason: str | None
    before: float | None = None

    @property
    def are_letters(self) -> bool:
        return self.states <= DEAD_LETTER_STATES

    def has_none_in(self, counts: Mapping[str, int]) -> bool:
        """Return whether the counts say that there is none. They know those that wait or are being sent."""
        names: set[str] = set(self.states - {State.QUEUED})
        if State.QUEUED in self.states:
            names.update(QUEUED_COUNTS)
        return names <= UNSETTLED_COUNTS and not any(counts.get(name, 0) > 0 for name in names)

    def fields(self) -> dict[str, Any]:
        """Return the filters as the script reads them."""
        fields = {
            "bot": None if self.bot is None else str(self.bot),
            "chat": None if self.chat_id is None else str(self.chat_id),
            "states": {state.value: True for state in self.states},
            "reason": self.reason,
            "before": self.before,
        }
        return {name: value for name, value in fields.items() if value is not None}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**64))
