"""Whole runs of the gate against the simulator in virtual time: what the design promises, over minutes."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metric_samples import Samples, samples
from tidegate import Tidegate
from tidegate.model import BotId, ChatId, Rate
from tidegate.ops.metrics import Metrics
from tidegate.outbox.port import OutboxStats
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Faults, Latency, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

EACH_WAY = Latency.parse("5-40")
WEATHER = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
ROUND_TRIP = 0.045

Work = Callable[[Tidegate, VirtualClock], Awaitable[Any]]
Learned = Mapping[tuple[BotId, ChatId | None], Rate]


class Run:
    """What came of one run."""

    def __init__(
        self,
        stats: OutboxStats,
        learned: Learned,
        telegram: SimulatedTelegram,
        seconds: float,
        result: Any,  # noqa: ANN401
    ) -> None:
        self.stats = stats
        self.learned = learned
        self.telegram = telegram
        self.report = telegram.report()
        self.seconds = seconds
        self.result = result


def run(
    work: Work, *, limits: Limits | None = None, faults: Faults = WEATHER, bots: int = 1, seed: int = 0
) -> Run:
    """Let `work` happen with a worker beside it, until everything is delivered."""

    async def main(clock: VirtualClock) -> Run:
        telegram = SimulatedTelegram(clock, limits=limits, faults=faults, seed=seed)
        gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
        for bot in range(1, bots + 1):
            gate.add_bot(f"{bot}:token")
        async with gate, gate.worker():
            result = await work(gate, clock)
            await gate.drained()
            stats, learned = await gate.stats(), await gate.outbox.learned()
            return Run(stats, learned, telegram, clock.monotonic(), result)

    return virtual_time.run(main, seed)


def sending(items: Sequence[Mapping[str, Any]], **shared: Any) -> Work:  # noqa: ANN401  (fields)
    async def work(gate: Tidegate, _: VirtualClock) -> None:
        await gate.send_many(items, **shared)

    return work


def clean(run: Run, messages: int) -> bool:
    """Everything arrived, once, in order, and nobody was refused."""
    report = run.report
    troubles = (report["refused"], report["out_of_order"], report["doubled"])
    return troubles == (0, 0, 0) and report["accepted"] == run.stats.delivered == messages


def test_a_broadcast_leaves_at_the_rate_that_the_limit_allows() -> None:
    done = run(sending([{"chat_id": 1 + i, "text": f"#{i}"} for i in range(900)], priority="low"))
    assert clean(done, 900)
    ideal = 900 / (30 / (1 + ROUND_TRIP))
    assert ideal / done.seconds > 0.97


def test_groups_wait_for_their_minute_without_holding_up_people() -> None:
    people = [{"chat_id": 1 + i, "text": f"#{i}"} for i in range(150)]
    groups = [{"chat_id": -1 - i % 5, "text": f"#{i}"} for i in range(150)]
    items = [item for pair in zip(people, groups, strict=True) for item in pair]
    done = run(sending(items))
    assert clean(done, len(items))
    last_person = max(entry.at for entry in done.telegram.request_log.log if str(entry.chat_id)[0] != "-")
    assert last_person - virtual_time.EPOCH < 12


def test_the_parts_of_a_message_arrive_together_and_in_order() -> None:
    items = [{"chat_id": 1 + person, "text": f"#{part}"} for person in range(300) for part in range(3)]
    done = run(sending(items))
    assert clean(done, 900)
    arrivals: dict[object, list[float]] = {}
    for entry in done.telegram.request_log.log:
        arrivals.setdefault(entry.chat_id, []).append(entry.at)
    assert max(max(times) - min(times) for times in arrivals.values()) < 5


def test_bots_do_not_slow_each_other() -> None:
    async def work(gate: Tidegate, _: VirtualClock) -> None:
        for bot in range(1, 21):
            await gate.send_many([{"chat_id": 1 + i, "text": f"#{i}"} for i in range(100)], bot=bot)

    done = run(work, bots=20)
    assert clean(done, 2_000)
    assert done.seconds < 100 / (30 / (1 + ROUND_TRIP)) + 1


def test_one_chat_with_thousands_of_messages_does_not_slow_the_others() -> None:
    async def main(clock: VirtualClock) -> tuple[float, int]:
        telegram = SimulatedTelegram(clock, faults=WEATHER)
        gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
        gate.add_bot("1:token")
        async with gate, gate.worker():
            await gate.send_many({"chat_id": 7, "text": f"#{i}"} for i in range(10_000))
            others = await gate.send_many({"chat_id": 100 + i, "text": "x"} for i in range(300))
            for ticket in others:
                await ticket.delivered()
            return clock.monotonic(), telegram.report()["refused"]

    seconds, refused = virtual_time.run(main)
    assert refused == 0
    assert seconds < 1.1 * 310 / (30 / (1 + ROUND_TRIP))


def test_replies_are_quick_while_a_broadcast_runs() -> None:
    async def work(gate: Tidegate, clock: VirtualClock) -> list[float]:
        await gate.send_many(({"chat_id": 1 + i, "text": "news"} for i in range(2_000)), priority="low")
        waits: list[float] = []
        draw = random.Random(1)

        async def reply(chat: int) -> None:
            started = clock.monotonic()
            await gate.call("sendMessage", {"chat_id": chat, "text": "reply"})
            waits.append(clock.monotonic() - started)

        async with asyncio.TaskGroup() as replies:
            for i in range(200):
                await clock.sleep(draw.expovariate(5))
                replies.create_task(reply(1_000_000 + i))
        return sorted(waits)

    done = run(work)
    assert done.report["refused"] == 0
    median, p99 = done.result[100], done.result[198]
    assert median - ROUND_TRIP < 0.050
    assert p99 - ROUND_TRIP < 0.250


@pytest.mark.parametrize("closes", ["chat", "bot"])
def test_a_limit_that_the_rules_do_not_know_is_learned(closes: Any) -> None:  # noqa: ANN401  (a Literal)
    limits = Limits(burst=1, bot=Rate(20, 1), closes=closes)
    done = run(sending([{"chat_id": 1 + i, "text": f"#{i}"} for i in range(4_000)]), limits=limits)
    per_minute: Counter[int] = Counter()
    refused: Counter[int] = Counter()
    for entry in done.telegram.request_log.log:
        minute = int(entry.at - virtual_time.EPOCH) // 60
        per_minute[minute] += 1
        refused[minute] += entry.status == 429
    assert done.stats.delivered == 4_000
    bot = {place: rate.count for place, rate in done.learned.items() if place[1] is None}
    assert bot == {(1, None): pytest.approx(20, abs=1)}
    later = sum(refused[minute] for minute in per_minute if minute > 0)
    assert later / sum(per_minute[minute] for minute in per_minute if minute > 0) < 0.005
    assert done.seconds < 4_000 / 14


def test_in_bad_weather_every_message_comes_to_an_end_and_the_sum_is_exact() -> None:
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY, server_error=0.2, lost_answer=0.05)
    items = [
        {"chat_id": 1 + i, "text": f"#{i}", "on_unknown": ("park", "resend")[i % 2]} for i in range(1_000)
    ]
    done = run(sending(items), faults=faults)
    stats = done.stats
    assert stats.delivered + stats.parked + stats.dead == 1_000
    assert (stats.waiting, stats.sending) == (0, 0)
    assert stats.parked == pytest.approx(25, abs=15)
    assert done.report["refused"] == 0
    # While many wait: the last ones wait for their third and fourth try. No 5xx is in the log.
    logged = sum(entry.at - virtual_time.EPOCH < 30 for entry in done.telegram.request_log.log)
    assert logged / 0.8 / 30 > 0.8 * 30 / (1 + ROUND_TRIP)


def test_answers_that_never_come_do_not_halve_the_rate() -> None:
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY, silent=0.05)
    items = [{"chat_id": 1 + i, "text": f"#{i}", "on_unknown": "park"} for i in range(1_500)]
    done = run(sending(items), faults=faults)
    assert done.stats.delivered + done.stats.parked == 1_500
    assert done.stats.uncertain == done.stats.parked > 30
    assert done.report["refused"] == 0
    # A slot without an answer is held 5 s and cools 1 s: 0.95 · 1.045 + 0.05 · 6 s for each call.
    tail = 20  # until the last silent one is given up
    assert 1_500 / (done.seconds - tail) > 0.9 * 30 / (0.95 * (1 + ROUND_TRIP) + 0.05 * 6)


def test_albums_are_not_starved_by_a_stream_of_messages() -> None:
    async def work(gate: Tidegate, clock: VirtualClock) -> float:
        await gate.send_many({"chat_id": 1 + i, "text": "x"} for i in range(600))
        media = [{"type": "photo", "media": "https://example.org/a.png"}] * 10
        album = await gate.send(chat_id=-5, method="sendMediaGroup", media=media)
        await gate.send_many({"chat_id": 10_000 + i, "text": "x"} for i in range(600))
        await album.delivered()
        return clock.monotonic()

    done = run(work)
    assert done.report["refused"] == 0
    assert done.result < 30


@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, -1, -2, 77]), st.integers(1, 12)), min_size=1, max_size=12),
)
@pytest.mark.parametrize("replies", [True, False])
def test_no_limit_is_ever_broken_whatever_is_sent(
    replies: bool,  # noqa: FBT001
    seed: int,
    chats: list[tuple[int, int]],
) -> None:
    """Replies burst, 5 in 5 s; without them, no second of a chat holds more than one message."""
    draw = random.Random(seed)
    private = Rate(5, 5) if replies else Rate(1, 1)
    items = [
        {"chat_id": chat, "text": f"#{priority}:{i}", "priority": priority}
        for i, (chat, count) in enumerate(chats)
        for priority in [draw.choice(["high", "normal", "low"] if replies else ["normal", "low"])]
        for i in range(100 * i, 100 * i + count)
    ]
    limits = Limits(burst=1, bot=Rate(30, 1), private=private, group=Rate(20, 60), closes="nothing")
    done = run(sending(items), limits=limits, seed=seed)
    assert clean(done, len(items))


def test_metrics_of_a_run_are_what_telegram_has_counted() -> None:
    items = [
        {"chat_id": 1 + i % 400, "text": f"#{i}", "priority": ("low", "high")[i % 2]} for i in range(800)
    ]

    async def work(gate: Tidegate, clock: VirtualClock) -> Samples:
        metrics = Metrics(gate)
        await gate.send_many(items)
        async with asyncio.TaskGroup() as calls:
            for chat in range(1_000, 1_050):
                calls.create_task(gate.call("sendMessage", {"chat_id": chat, "text": "now"}))
        await gate.drained()
        await clock.sleep(60)
        return await samples(metrics)

    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY, server_error=0.1)
    limits = Limits(burst=1, bot=Rate(20, 1), closes="chat")
    done = run(work, limits=limits, faults=faults)
    found, report = done.result, done.report
    failed = sum(count for status, count in report["statuses"].items() if status[0] == "5")
    assert found("telegram_429_count") == report["refused"] > 0
    assert found("telegram_5xx_count") == failed > 0
    assert found.sum("tidegate_sends_total") == report["requests"]
    assert found.sum("tidegate_sends_total", outcome="delivered") == report["accepted"] == 850
    assert found.by("tidegate_messages_accepted_total", "priority") == {("low",): 400, ("high",): 400}
    assert found.by("tidegate_messages_ended_total", "state") == {("delivered",): 800}
    assert found.sum("tidegate_queue_time_seconds_count") == 800
    assert found.sum("tidegate_call_duration_seconds_count") == report["requests"]
    learned = found("tidegate_bot_limit_calls_per_second", bot="1", limit="learned")
    assert learned == done.learned[BotId(1), None].count
    assert found("tidegate_closed_chats", bot="1") == 0
