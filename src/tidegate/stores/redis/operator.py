"""The operator's verbs on the outbox in Redis: any process may look and change."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.model import BotId, ChatId, Rate, Record, State, TicketId, Why
from tidegate.outbox.call_counts import CallCounts
from tidegate.outbox.event_log import EventLog, LimitChange
from tidegate.outbox.limit_states import limit_states
from tidegate.outbox.port import LimitState, OutboxOperator, OutboxStats, StoreHealth
from tidegate.outbox.reasons import explain
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNREADABLE, UNSETTLED_STATES
from tidegate.stores.message_codec import UnreadableBody, encode, report_unreadable
from tidegate.stores.redis.outbox_codec import (
    OPEN_COUNT_PREFIX,
    PROCESS_GONE_AFTER,
    TURN_PREFIX,
    OutboxReply,
    ReportedMessage,
    parse_chat_id,
)
from tidegate.stores.redis.waiters import EndedMessages, RedisSettledWaiters

if TYPE_CHECKING:  # commands read this without the driver
    from tidegate.stores.redis.connection import Argument, RedisConnection
    from tidegate.stores.redis.fallback import OutboxFallback

IDS_PER_STEP: Final = 200
DEAD_LETTERS_PER_STEP: Final = 200
LEASES_EXAMINED: Final = 200
SCANNED: Final = 500  # messages of one step


class RedisOperator(OutboxOperator):
    """Looks and changes after everything that is due has acted. Spooled messages are found, too."""

    _fallback: "OutboxFallback"

    def __init__(
        self, connection: "RedisConnection", clock: Clock, on_end: Callable[[Record], None] | None
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._on_end = on_end
        self._events = EventLog(clock)
        self._calls = CallCounts(self._events)
        self._waiters = RedisSettledWaiters(clock, self._find_ended)
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
                self._events.outage(news.bot, news.obstacle, news.waiting)
            else:
                self._events.outage_end(news.bot, news.lasted, news.waiting)
        for refusal in reply.answer.refusals:
            if refusal.whole_bot:
                until, known = self._clock.monotonic() + refusal.seconds, self._closed_bots
                known[refusal.bot] = max(until, known.get(refusal.bot, 0.0))
            self._events.refused(
                refusal.bot, parse_chat_id(refusal.chat), refusal.seconds, whole_bot=refusal.whole_bot
            )
        for limit in reply.answer.limits:
            rule, before, after = (Rate(*pair) for pair in (limit.rule, limit.before, limit.after))
            chat = None if limit.chat is None else parse_chat_id(limit.chat)
            change = LimitChange(rule, before, after, restored=limit.restored)
            self._events.limit_changed(limit.bot, chat, change)
        return reply

    def _report_end(self, record: Record) -> None:
        self._events.ended(record)
        self._waiters.ended(record)
        if self._on_end is not None:
            self._on_end(record)

    async def _run_until_due_is_done(self, step: str, *args: "Argument") -> OutboxReply:
        """Run a step that looks, again if more was due than one step may do."""
        reply = await self._run(step, *args)
        while reply.answer.more:
            reply = await self._run(step, *args)
        return reply

    # --- look ---

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
        """Not those in the spool, which have not been accepted by Redis yet."""
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
        counts = await self._counts()
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
        found: list[Record] = []
        async for record in self._dead_letters():
            message = record.message
            if (
                record.state in states
                and bot in {None, message.bot}
                and chat_id in {None, message.chat_id}
                and reason in {None, record.reason}
            ):
                found.append(record)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _dead_letters(self) -> AsyncIterator[Record]:
        for first in itertools.count(0, DEAD_LETTERS_PER_STEP):
            reply = await self._run_until_due_is_done("dead_letters", first, DEAD_LETTERS_PER_STEP)
            for found in reply.answer.found:
                yield reply.record(found)
            if len(reply.answer.found) < DEAD_LETTERS_PER_STEP:
                return

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
        wanted = {
            "bot": None if bot is None else str(bot),
            "chat": None if chat_id is None else str(chat_id),
            "states": {state.value: True for state in states},
            "reason": reason,
            "before": before,
        }
        await self._run_until_due_is_done("stats")
        found = {each.id: (each.number, reply, each) async for reply, each in self._scan(wanted)}
        oldest = sorted(found.values(), key=lambda one: one[0])[:limit]
        return [reply.record(each) for _, reply, each in oldest]

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        wanted = {"bot": str(bot), "dedup": f"{bot}/{dedup_prefix}", "bare": True}
        await self._run_until_due_is_done("stats")
        states = {each.id: (each.state, each.reason) async for _, each in self._scan(wanted)}
        return Counter(states.values())

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
        counts = await self._counts()
        known = {name: count for name, count in counts.items() if name in OutboxStats.__struct_fields__}
        for name, count in self._calls.totals().items():
            known[name] = known.get(name, 0) + count
        return OutboxStats(**known, spooled=self._fallback.health().spooled)

    async def _counts(self) -> dict[str, int]:
        counts = (await self._run_until_due_is_done("stats")).answer.counts
        return counts if isinstance(counts, dict) else {}

    # --- change ---

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

    async def replay(self, ids: Iterable[TicketId]) -> int:
        """Not those that cannot be decoded: they would only die again."""
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

    async def limits(self) -> list[LimitState]:
        closures: list[tuple[BotId, ChatId | None, float, str]] = [
            (bot, None, seconds, obstacle) for bot, seconds, obstacle in await self._find_closed_bots()
        ]
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
    all_of_them, bots = StoreHealth(), set[BotId]()
    for name, body in zip(names, told, strict=True):
        if body is None:
            continue
        health = msgspec.msgpack.decode(body, type=StoreHealth)
        bots.update(health.bots)
        reasons = [f"process {name}: {reason}" for reason in health.reasons]
        all_of_them = all_of_them.with_notes(reasons) if health.ready else all_of_them.with_problems(reasons)
    return msgspec.structs.replace(all_of_them, bots=tuple(sorted(bots)))


async def open_by_bot(connection: "RedisConnection") -> dict[BotId, int]:
    """Return how many messages of each bot are not settled."""
    found = _pairs(await connection.command("HGETALL", connection.key("counts")))
    counts = {name.decode(): int(count) for name, count in found.items()}
    return {
        BotId(int(name.removeprefix(OPEN_COUNT_PREFIX))): count
        for name, count in counts.items()
        if name.startswith(OPEN_COUNT_PREFIX)
    }


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


def _literally(text: str) -> str:
    """Return a pattern that matches this text and no other."""
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in text)


def _pairs(found: Any) -> Mapping[bytes, bytes]:  # noqa: ANN401  (a hash, as the protocol spells it)
    return found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))
