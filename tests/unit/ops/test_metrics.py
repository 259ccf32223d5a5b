"""The metrics of a gate: events become samples, and the store is read when somebody asks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import values

from metric_samples import samples
from simulated import TOKEN
from tidegate import Tidegate
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.events import (
    Accepted,
    Attempted,
    CallAttempted,
    CyclePolled,
    Ended,
    JobEnded,
    LimitChange,
    LimitChanged,
    OutageBegan,
    RefusalHeard,
    Reminded,
    TurnTaken,
    UpdateReceived,
)
from tidegate.incidents import Incident
from tidegate.model import (
    BotId,
    Claim,
    Dead,
    Delivered,
    Message,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Record,
    Refused,
    Retry,
    State,
    TicketId,
    Unreachable,
)
from tidegate.ops.event_counts import MOST_VALUES
from tidegate.ops.loop_delay import DelayHistogram
from tidegate.ops.metric_families import FAMILIES
from tidegate.ops.metrics import Metrics
from tidegate.ops.metrics_text import best_format, render_metrics
from tidegate.outbox.port import LimitState, OutboxStats
from tidegate.settings import Settings
from tidegate.sim.virtual_time import EPOCH, VirtualClock

BOT = BotId(int(TOKEN.partition(":")[0]))
SLOWER = LimitChange(Rate(30, 1), Rate(30, 1), Rate(20, 1))


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


@pytest.fixture
def metrics(gate: Tidegate) -> Metrics:
    return Metrics(gate)


def message(bot: int = BOT, chat: int = 1, **fields: Any) -> Message:  # noqa: ANN401  (its own)
    return Message(id=TicketId("t"), bot=BotId(bot), chat_id=chat, method="sendMessage", params={}, **fields)


def attempted(outcome: Outcome, seconds: float = 0.03) -> Attempted:
    return Attempted(Claim(message(), 1, 1), outcome, seconds)


def called(outcome: Outcome | None, seconds: float = 0.03, method: str = "sendMessage") -> CallAttempted:
    return CallAttempted(BOT, method, 1, outcome, seconds, dict, dict)


def ended(state: State, *, after: float = 2.0, reason: str | None = None, **of_message: Any) -> Ended:  # noqa: ANN401
    return Ended(
        Record(
            message=message(**of_message),
            state=state,
            created_at=EPOCH,
            settled_at=EPOCH + after,
            reason=reason,
        )
    )


async def test_messages_are_counted_by_bot_priority_state_and_reason(
    gate: Tidegate, metrics: Metrics
) -> None:
    low = [message(priority=Priority.LOW)] * 3
    for event in (
        Accepted([*low, message(bot=7)]),
        ended(State.DELIVERED),
        ended(State.DEAD, reason="blocked"),
        ended(State.CANCELLED),
    ):
        gate.core.events.publish(event)

    found = await samples(metrics)
    bot = str(BOT)
    assert found("tidegate_messages_accepted_total", bot=bot, priority="low") == 3
    assert found("tidegate_messages_accepted_total", bot="7", priority="normal") == 1
    assert found("tidegate_messages_ended_total", bot=bot, state="delivered") == 1
    assert found("tidegate_messages_ended_total", bot=bot, state="cancelled") == 1
    assert found("tidegate_messages_dead_total", bot=bot, reason="blocked") == 1
    assert found("tidegate_queue_time_seconds_count", priority="normal") == 2  # not the cancelled one
    assert found("tidegate_queue_time_seconds_bucket", priority="normal", le="1.0") == 0
    assert found("tidegate_queue_time_seconds_bucket", priority="normal", le="2.5") == 2
    assert found("tidegate_queue_time_seconds_sum", priority="normal") == 4


async def test_time_in_the_queue_counts_from_when_a_message_may_go(gate: Tidegate, metrics: Metrics) -> None:
    gate.core.events.publish(ended(State.DELIVERED, after=3601, not_before=EPOCH + 3600))
    assert (await samples(metrics))("tidegate_queue_time_seconds_sum", priority="normal") == 1


async def test_calls_are_counted_by_outcome_and_what_was_not_on_the_wire_has_no_duration(
    gate: Tidegate, metrics: Metrics
) -> None:
    for event in (
        attempted(Delivered(None)),
        attempted(Refused(5)),
        attempted(Retry(1, "server_error", counted=False)),
        attempted(NotSent("late"), 0.0),
        called(Delivered(None), 0.2, "editMessageText"),
        called(Unreachable(1, "server_error")),
        called(Unreachable(1, "connect")),
        called(Dead("bad_request", "no")),
        called(None, 0.0),
        TurnTaken(BOT, 0.3),
        TurnTaken(BOT, None),
    ):
        gate.core.events.publish(event)

    found, bot = await samples(metrics), str(BOT)
    assert found.by("tidegate_sends_total", "kind", "outcome") == {
        ("queued", "delivered"): 1,
        ("queued", "refused"): 1,
        ("queued", "retried"): 1,
        ("queued", "not_sent"): 1,
        ("direct", "delivered"): 1,
        ("direct", "unreachable"): 2,
        ("direct", "dead"): 1,
    }
    assert found("tidegate_call_duration_seconds_count", family="send") == 6
    assert found("tidegate_call_duration_seconds_bucket", family="edit", le="0.25") == 1
    assert found("tidegate_server_errors_total", bot=bot) == 2
    assert found("tidegate_direct_calls_given_up_total", bot=bot) == 1
    assert found("tidegate_turn_wait_seconds_count") == 1
    assert found("tidegate_turn_wait_seconds_sum") == 0.3


async def test_refusals_outages_and_learned_limits_are_counted(gate: Tidegate, metrics: Metrics) -> None:
    restored = msgspec.structs.replace(SLOWER, restored=True)
    raised = LimitChange(Rate(30, 1), Rate(20, 1), Rate(22, 1))
    for event in (
        RefusalHeard(BOT, 30, "chat", 5),
        RefusalHeard(BOT, 30, "bot", 6),
        LimitChanged(BOT, None, SLOWER),
        LimitChanged(BOT, 5, raised),
        LimitChanged(BOT, None, restored),
        OutageBegan(BOT, "connect", 3),
    ):
        gate.core.events.publish(event)

    found, bot = await samples(metrics), str(BOT)
    assert found("tidegate_refusals_total", bot=bot, closes="chat") == 1
    assert found("tidegate_refusals_total", bot=bot, closes="bot") == 1
    assert found("tidegate_refusals_total", bot=bot, closes="nothing") == 0
    assert found("tidegate_limit_changes_total", bot=bot, scope="bot", change="cut") == 1
    assert found("tidegate_limit_changes_total", bot=bot, scope="chat", change="raised") == 1
    assert found("tidegate_limit_changes_total", bot=bot, scope="bot", change="restored") == 1
    assert found("tidegate_outages_total", bot=bot) == 1


async def test_a_chat_that_a_429_has_closed_is_open_again_in_time(
    gate: Tidegate, metrics: Metrics, clock: VirtualClock
) -> None:
    gate.core.events.publish(RefusalHeard(BOT, 30, "chat", 5))
    gate.core.events.publish(RefusalHeard(BOT, 60, "chat", 6))
    closed = []
    for seconds in (1, 30, 30):
        await clock.sleep(seconds)
        closed.append((await samples(metrics))("tidegate_closed_chats", bot=str(BOT)))
    assert closed == [2, 1, 0]


async def test_updates_polling_reminders_and_jobs_are_counted(gate: Tidegate, metrics: Metrics) -> None:
    for event in (
        UpdateReceived(BOT, dict),
        UpdateReceived(BOT, dict),
        CyclePolled("payments", 100, 4, 0.7),
        CyclePolled("payments", 50, 2, 0.3),
        Reminded(40, 1.5),
        JobEnded("label", "done", 3.0),
        JobEnded("label", "retry", 0.2),
    ):
        gate.core.events.publish(event)

    found = await samples(metrics)
    assert found("tidegate_updates_received_total", bot=str(BOT)) == 2
    assert found("tidegate_poll_cycles_total", poller="payments") == 2
    assert found("tidegate_poll_requests_total", poller="payments") == 6
    assert found("tidegate_poll_asked_total", poller="payments") == 150
    assert found("tidegate_poll_duration_seconds_sum", poller="payments") == 1.0
    assert found("tidegate_reminders_fired_total") == 40
    assert found("tidegate_reminder_lateness_seconds_bucket", le="2.5") == 1
    assert found("tidegate_jobs_ended_total", job="label", outcome="done") == 1
    assert found("tidegate_job_duration_seconds_count", job="label") == 2


async def test_an_event_is_counted_once_however_often_somebody_asks(gate: Tidegate, metrics: Metrics) -> None:
    for _ in range(3):
        gate.core.events.publish(attempted(Delivered(None)))
        await samples(metrics)
    found = await samples(metrics)
    assert found.sum("tidegate_sends_total") == 3
    assert found("tidegate_call_duration_seconds_count", family="send") == 3


async def test_labels_are_bounded_and_name_no_chat_and_no_user(gate: Tidegate, metrics: Metrics) -> None:
    many = MOST_VALUES + 50
    for number in range(many):
        for event in (
            Accepted([message(bot=1000 + number, chat=10_000 + number)]),
            ended(State.DEAD, reason=f"reason {number}"),
            RefusalHeard(BotId(1000 + number), 5, "chat", 10_000 + number),
            CyclePolled(f"poller {number}", 1, 1, 0.1),
            JobEnded(f"job {number}", "done", 1.0),
        ):
            gate.core.events.publish(event)

    found = await samples(metrics)
    values_of: dict[str, set[str]] = {}
    for _, labels in found.all:
        for name, value in labels:
            values_of.setdefault(name, set()).add(value)
    assert set(values_of) <= {label for family in FAMILIES for label in family.labels} | {"le"}
    assert not {"chat", "chat_id", "user", "user_id"} & set(values_of)
    for name in ("bot", "poller", "job", "reason"):
        assert len(values_of[name]) == MOST_VALUES + 1
        assert "other" in values_of[name]
    assert found.sum("tidegate_messages_accepted_total") == many
    assert found.sum("tidegate_poll_cycles_total", poller="other") == 50


async def test_gauges_of_the_store_say_what_waits_and_what_may_be_sent(
    gate: Tidegate, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gate.send_many(({"chat_id": chat, "text": "x"} for chat in range(1, 4)), priority="low")

    async def limits(*, chats: bool) -> list[LimitState]:
        assert not chats  # there may be a million of them
        return [LimitState(BOT, None, Rate(12, 1), 30.0)]

    async def by_bot() -> dict[BotId, OutboxStats]:
        return {BOT: OutboxStats(low=2, retry=1, dead=9), BotId(7): OutboxStats(high=1)}

    monkeypatch.setattr(gate.outbox, "limits", limits)
    monkeypatch.setattr(gate.outbox, "stats_by_bot", by_bot)
    found, bot = await samples(metrics), str(BOT)
    assert found("tidegate_queue_messages", state="queued", priority="low") == 3
    assert found("tidegate_queue_messages", state="dead", priority="") == 0
    assert found("tidegate_bot_waiting_messages", bot=bot) == 3
    assert found("tidegate_bot_waiting_messages", bot="7") == 1  # of a bot that is not registered
    assert found("tidegate_bot_limit_calls_per_second", bot=bot, limit="nominal") == 30
    assert found("tidegate_bot_limit_calls_per_second", bot=bot, limit="learned") == 12
    assert found("tidegate_bot_closed_seconds", bot=bot) == 30
    assert found("tidegate_bot_unreachable", bot=bot) == 0
    assert found("tidegate_store_up", store="memory") == 1
    assert found("tidegate_database_up") is None  # it is not used


@pytest.mark.parametrize(("put_at", "age"), [(EPOCH - 90, 90), (EPOCH + 5, 0), (None, 0)])
async def test_the_age_of_the_oldest_message_is_known_and_never_negative(
    gate: Tidegate, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, put_at: float | None, age: float
) -> None:
    async def stats() -> OutboxStats:
        return OutboxStats(oldest_at=put_at)

    monkeypatch.setattr(gate, "stats", stats)
    assert (await samples(metrics))("tidegate_queue_oldest_age_seconds") == age


async def test_the_store_is_read_at_most_once_in_two_seconds(
    gate: Tidegate, metrics: Metrics, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    async def stats() -> OutboxStats:
        nonlocal reads
        reads += 1
        await clock.sleep(0.1)
        return OutboxStats(high=reads)

    monkeypatch.setattr(gate, "stats", stats)
    await asyncio.gather(*(render_metrics(metrics) for _ in range(20)))
    await clock.sleep(1.5)
    assert (await samples(metrics))("tidegate_queue_messages", state="queued", priority="high") == 1
    await clock.sleep(0.5)
    assert (await samples(metrics))("tidegate_queue_messages", state="queued", priority="high") == 2
    assert reads == 2


@pytest.mark.parametrize("hangs", [False, True])
async def test_while_the_store_is_away_the_rest_is_served(
    gate: Tidegate, metrics: Metrics, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    async def away() -> OutboxStats:
        if hangs:
            await clock.sleep(3600)
        raise StoreAwayError("no Redis")

    monkeypatch.setattr(gate, "stats", away)
    gate.core.events.publish(attempted(Delivered(None)))
    began = clock.monotonic()
    found = await samples(metrics)
    assert clock.monotonic() - began < 5
    assert found("tidegate_store_up", store="memory") == 0
    assert found.sum("tidegate_sends_total") == 1
    assert "tidegate_queue_messages" not in found.names()


async def test_a_database_that_does_not_answer_is_down(
    gate: Tidegate, metrics: Metrics, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for delay in (0.1, 3600.0):
        monkeypatch.setattr(gate.database, "ping", lambda delay=delay: clock.sleep(delay))
        found.append((await samples(metrics))("tidegate_database_up"))
        await clock.sleep(2)
    monkeypatch.undo()
    found.append((await samples(metrics))("tidegate_database_up"))  # it is not open
    assert found == [1, 0, 0]


async def test_numbers_that_are_counted_elsewhere_are_taken_over_as_they_grow(
    gate: Tidegate, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = DelayHistogram()
    monkeypatch.setattr(gate, "loop_delay", delays.reading)
    for delay in (0.0004, 0.04, 40.0):
        delays.record(delay, 100.0)
        gate.core.incidents.note(Incident(kind="loop_blocked", text="blocked", group="here"))
        await samples(metrics)
    found = await samples(metrics)
    assert found("tidegate_loop_delay_seconds_count") == 3
    assert found("tidegate_loop_delay_seconds_bucket", le="0.001") == 1
    assert found("tidegate_loop_delay_seconds_bucket", le="0.05") == 2
    assert found("tidegate_loop_delay_seconds_bucket", le="30.0") == 2
    assert found("tidegate_loop_delay_seconds_sum") == pytest.approx(40.0404)
    assert found("tidegate_incidents_total", kind="loop_blocked") == 3
    assert found("tidegate_incidents_total", kind="slow_transaction") == 0
    assert (found("process_cpu_seconds_total") or 0) > 0
    assert (found("process_resident_memory_bytes") or 0) > 1_000_000


class Recorder:
    written, dropped, waiting, spooled_bytes = 10, 0, 3, 0


async def test_rows_of_the_history_are_counted_if_there_is_one(gate: Tidegate, metrics: Metrics) -> None:
    recorder = Recorder()
    of_history = Metrics(gate, history=recorder)
    await samples(of_history)
    recorder.written, recorder.dropped, recorder.waiting, recorder.spooled_bytes = 25, 2, 0, 4096
    found = await samples(of_history)
    assert found("tidegate_history_rows_written_total") == 25
    assert found("tidegate_history_rows_dropped_total") == 2
    assert found("tidegate_history_rows_waiting") == 0
    assert found("tidegate_history_spooled_bytes") == 4096
    assert (await samples(metrics))("tidegate_history_rows_written_total") is None


async def test_a_worker_is_silent_only_if_something_may_go_and_nothing_goes(
    gate: Tidegate, metrics: Metrics, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence() -> float:
        at = (await samples(metrics))("tidegate_worker_last_progress_timestamp_seconds")
        return clock.now() - (at or 0)

    assert (await samples(metrics))("tidegate_worker_last_progress_timestamp_seconds") is None
    async with gate.worker():
        await clock.sleep(100)
        assert await silence() == 0  # nothing is to be sent
        monkeypatch.setattr(gate.outbox, "may_claim", lambda: True)
        await clock.sleep(100)
        assert await silence() == 100
        gate.core.events.publish(attempted(Delivered(None)))
        assert await silence() == 0


async def test_readiness_is_that_of_the_gate(
    gate: Tidegate, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await samples(metrics))("tidegate_ready") == 1
    sick = gate.health().with_problems(["the disk is full"])
    monkeypatch.setattr(gate, "health", lambda: sick)
    assert (await samples(metrics))("tidegate_ready") == 0


def test_a_folder_that_came_too_late_or_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    gate = Tidegate("memory://", settings=Settings(prometheus_multiproc_dir=file))
    with pytest.raises(BadInputError, match="set it before Python starts"):
        Metrics(gate)
    monkeypatch.setattr(values, "ValueClass", object)
    with pytest.raises(BadInputError, match=r"file: File exists: write another folder"):
        Metrics(gate)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", "text"),
        ("*/*", "text"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text"),
        ("application/json", "json"),
        ("application/json, text/plain, */*", "json"),
        ("text/plain;q=0.9, application/json;q=0.5", "text"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "openmetrics",
        ),
        ("application/json;q=nonsense", "text"),
    ],
)
def test_the_format_is_what_the_request_likes_best(accept: str, wanted: str) -> None:
    assert best_format(accept) == wanted


async def test_the_names_of_before_are_in_every_format(gate: Tidegate, metrics: Metrics) -> None:
    for event in (
        RefusalHeard(BOT, 3, "chat", 5),
        RefusalHeard(BOT, 3, "nothing", call="getMe"),
        called(Retry(1, "server_error")),
        called(None),
    ):
        gate.core.events.publish(event)
    expected = {"telegram_429_count": 2, "telegram_5xx_count": 1, "telegram_rate_limited_drops": 1}

    kind, text = await render_metrics(metrics)
    assert kind.startswith("text/plain; version=0.0.4")
    lines = text.decode().splitlines()
    for name, value in expected.items():
        assert f"# TYPE {name} counter" in lines
        assert f"{name} {value}" in lines
    kind, text = await render_metrics(metrics, "application/openmetrics-text")
    assert kind.startswith("application/openmetrics-text")
    for name, value in expected.items():
        assert f"\n{name} {value}.0\n" in text.decode()
    assert text.endswith(b"# EOF\n")
    kind, text = await render_metrics(metrics, "application/json")
    assert kind == "application/json"
    assert expected.items() <= msgspec.json.decode(text).items()


async def test_the_json_is_flat_and_has_the_queue(gate: Tidegate, metrics: Metrics) -> None:
    await gate.send(chat_id=1, text="x", priority="high")
    _, text = await render_metrics(metrics, "application/json")
    found = msgspec.json.decode(text)
    assert {name: found[f"queue_{name}"] for name in ("high", "normal", "low", "retry", "dead")} == {
        "high": 1,
        "normal": 0,
        "low": 0,
        "retry": 0,
        "dead": 0,
    }
    assert found["tidegate_messages_accepted_total"] == 1
    assert all(isinstance(value, int | float) for value in found.values())


async def test_no_creation_times_double_the_series(metrics: Metrics) -> None:
    assert b"_created" not in (await render_metrics(metrics))[1]
    assert b"_created" not in (await render_metrics(metrics, "application/openmetrics-text"))[1]
