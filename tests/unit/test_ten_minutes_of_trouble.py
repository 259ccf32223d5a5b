"""Ten minutes in which Telegram does not work, and a thousand messages: they wait, and then all leave.

The gate, its stores and the simulated Telegram are the real ones; time is virtual.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.delivery.sender import BotAccess, Sender
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.delivery.worker import Worker
from tidegate.model import BotId, Message, State, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import EPOCH, VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.sqlite.outbox import SqliteOutbox

BEFORE, OUTAGE, AFTER = 5.0, 600.0, 60.0  # seconds
MANY, FEW = 1_000, 250  # messages
BOT = BotId(42)
DELAY = Latency.parse("5-40")
Trouble = Literal[
    "5xx", "401", "dns", "lost answers", "silence", "pages", "404", "5xx of sends", "lost sends"
]
TROUBLES: tuple[Trouble, ...] = (
    "5xx", "401", "dns", "lost answers", "silence", "pages", "404", "5xx of sends", "lost sends",
)  # fmt: skip
NOTICED_AFTER: Mapping[str, float] = {"silence": 25.0}  # seconds: an answer is waited for 20 s
_ERRORS: Mapping[str, ApiAnswer] = {
    "401": ApiAnswer(401, {"ok": False, "error_code": 401, "description": "Unauthorized"}),
    "404": ApiAnswer(404, {"ok": False, "error_code": 404, "description": "Not Found"}),
    "pages": ApiAnswer(403, None),
    "5xx of sends": ApiAnswer(502, None),
}


class TroubledWire:
    """The way to the simulated Telegram, with trouble between two instants."""

    def __init__(self, telegram: SimulatedTelegram, clock: VirtualClock, trouble: Trouble) -> None:
        self.requests: list[float] = []
        self.copies: Counter[int] = Counter()
        self._wire = TelegramWire(telegram, clock)
        self._telegram, self._clock, self._trouble = telegram, clock, trouble

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,  # noqa: ARG002
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,  # noqa: ARG002
    ) -> ApiAnswer | NoAnswer:
        now = self._clock.monotonic()
        self.requests.append(now)
        troubled = BEFORE <= now < BEFORE + OUTAGE
        trouble = self._trouble if troubled else None
        sends = method == "sendMessage"
        if trouble == "dns":
            return NoAnswer(left=False, reason="dns")
        if trouble is not None and trouble in _ERRORS and (sends or trouble != "5xx of sends"):
            return _ERRORS[trouble]
        faults = Faults(latency_in=DELAY, latency_out=DELAY)
        if trouble == "5xx":
            faults = Faults(server_error=1)
        elif trouble == "lost answers" or (trouble == "lost sends" and sends):
            faults = Faults(lost_answer=1)
        elif trouble == "silence":
            faults = Faults(silent=1)
        self._telegram.faults = faults
        return await self._wire.call(
            token, method, params, api_url=api_url, deadline=deadline, on_written=on_written
        )

    async def close(self) -> None:
        pass


class Run:
    """The numbers of one run."""

    def __init__(
        self, wire: TroubledWire, telegram: SimulatedTelegram, states: Counter[State], noticed: float
    ) -> None:
        sent = [
            call for call in telegram.request_log.log if call.method == "sendMessage" and call.status == 200
        ]
        self.states = dict(states)
        self.copies = max(Counter(call.chat_id for call in sent).values())
        self.doubled = sum(n > 1 for n in Counter(call.chat_id for call in sent).values())
        self.people = len({call.chat_id for call in sent})
        self.last = max(call.at for call in sent) - EPOCH - BEFORE - OUTAGE
        self.refused = sum(call.status == 429 for call in telegram.request_log.log)
        # Those in flight when it began were on their way; from then on it is one probe at a time.
        held = [at for at in wire.requests if BEFORE + noticed <= at < BEFORE + OUTAGE]
        self.meanwhile = len(held)
        self.busiest = max(Counter(int(at) for at in held).values(), default=0)

    def __str__(self) -> str:
        return (
            f"{self.states}, copies at most {self.copies} ({self.doubled} of {self.people} people),"
            f" last one {self.last:.1f} s after the end, {self.meanwhile} requests meanwhile,"
            f" at most {self.busiest} in a second, {self.refused} refused"
        )


Opener = Callable[[VirtualClock, Path], Awaitable[Outbox]]


async def memory(clock: VirtualClock, _: Path) -> Outbox:
    return MemoryOutbox(clock, Rules(), keep=1e6)


async def sqlite(clock: VirtualClock, folder: Path) -> Outbox:
    return SqliteOutbox(folder / "store.db", clock, Rules(), keep=1e6, poll=3600.0)


async def redis(clock: VirtualClock, _: Path) -> Outbox:
    return RedisOutbox(InlineConnection(redis_url(), clock), clock, Rules(), keep=1e6)


def play(opener: Opener, trouble: Trouble, folder: Path, messages: int = MANY) -> Run:
    async def main(clock: VirtualClock) -> Run:
        telegram = SimulatedTelegram(clock)
        telegram.request_log.log.clear()
        wire = TroubledWire(telegram, clock, trouble)
        outbox = await opener(clock, folder)
        await outbox.open()
        sender = Sender(cast("BotApiTransport", wire), clock)
        sender.bots[BOT] = BotAccess("42:token", "")
        await clock.sleep(BEFORE)
        await outbox.put(
            [
                Message(
                    id=TicketId(f"m{i}"),
                    bot=BOT,
                    chat_id=1 + i,
                    method="sendMessage",
                    params={"text": f"#{i}"},
                )
                for i in range(messages)
            ]
        )
        try:
            async with Worker(outbox, sender, clock):
                await clock.sleep(OUTAGE + AFTER)
            records = await outbox.records(limit=2 * messages)
            noticed = NOTICED_AFTER.get(trouble, 2.0)
            return Run(wire, telegram, Counter(record.state for record in records), noticed)
        finally:
            await outbox.close()

    return virtual_time.run(main)


def check(run: Run, messages: int = MANY) -> None:
    assert run.states == {State.DELIVERED: messages}
    assert run.people == messages
    assert run.copies <= 2
    assert run.last < AFTER
    assert run.meanwhile <= OUTAGE
    assert run.busiest <= 2  # a probe, and the question before it where answers are lost
    assert run.refused == 0


@pytest.mark.parametrize("trouble", TROUBLES)
def test_ten_minutes_of_trouble_lose_kill_and_triple_nothing(trouble: Trouble, tmp_path: Path) -> None:
    run = play(memory, trouble, tmp_path)
    print(f"{trouble}, memory: {run}")  # noqa: T201  (the numbers are what it is for)
    check(run)


@pytest.mark.parametrize("messages", [FEW, pytest.param(MANY, marks=pytest.mark.proof)])
@pytest.mark.parametrize("trouble", ["5xx", "401", "dns", "lost answers"])
@pytest.mark.parametrize("opener", [sqlite, redis])
def test_ten_minutes_of_trouble_are_the_same_in_a_durable_store(
    opener: Opener, trouble: Trouble, messages: int, tmp_path: Path
) -> None:
    run = play(opener, trouble, tmp_path, messages)
    print(f"{trouble}, {opener.__name__}: {run}")  # noqa: T201
    check(run, messages)
