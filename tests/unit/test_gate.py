"""The facade as a bot developer uses it, in virtual time against the simulator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiogram import Bot
from rich.pretty import pretty_repr

from simulated import TOKEN
from tidegate import File, LiveTicket, Receipt, Tidegate
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.errors import (
    BadInputError,
    ClosedError,
    DeadError,
    ExpiredError,
    LimitedError,
    NotDeliveredError,
    NotTheSenderError,
    OutcomeUnknownError,
    WithdrawnError,
)
from tidegate.model import Message, Rate
from tidegate.pacing.rules import Rules
from tidegate.settings import Settings
from tidegate.sim.telegram import Faults, Latency, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock


async def test_what_is_sent_is_delivered_with_a_receipt(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    ticket = await gate.send(chat_id=1001, text="Hello", priority="high", disable_notification=True)
    async with gate.worker():
        receipt = await ticket.delivered(timeout=30)
    assert receipt.message_id == 1
    assert receipt.result["text"] == "Hello"
    assert telegram.report()["accepted"] == 1
    assert (await gate.stats()).delivered == 1


async def test_fields_without_names_are_refused_with_the_call_that_is_meant(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match=r'by name: gate.send\(chat_id=1001, text="Hello"\)'):
        await gate.send(1001, "Hello")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=r"by name: gate.send_or_queue\(chat_id=1001"):
        await gate.send_or_queue(1001)  # type: ignore[arg-type]


async def test_many_are_sent_in_the_order_of_each_chat(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    items = ({"chat_id": 1 + i % 7, "text": f"part #{i}"} for i in range(50))
    tickets = await gate.send_many(items, priority="low")
    async with gate.worker():
        await gate.drained()
    report = telegram.report()
    assert len(tickets) == report["accepted"] == (await gate.stats()).delivered == 50
    assert (report["refused"], report["out_of_order"], report["doubled"]) == (0, 0, 0)


async def test_an_audience_may_be_an_async_iterable(gate: Tidegate) -> None:
    async def audience() -> AsyncIterator[dict[str, Any]]:
        for chat in (1, 2, 3):
            yield {"chat_id": chat, "text": "Hello"}

    assert len(await gate.send_many(audience(), priority="low")) == 3


@pytest.mark.usefixtures("no_bursts")
async def test_a_call_is_made_now_and_paced_without_a_worker(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    for _ in range(3):
        await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert clock.monotonic() == pytest.approx(2, abs=0.01)
    assert telegram.report()["refused"] == 0
    assert (await gate.call("getChat", {"chat_id": 7}))["id"] == 7


@pytest.mark.usefixtures("no_bursts")
async def test_a_call_that_would_wait_too_long_says_so(gate: Tidegate) -> None:
    await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert not await gate.can_send(7)
    assert await gate.can_send(7, max_wait=1)
    with pytest.raises(LimitedError, match="sendMessage to 7") as caught:
        await gate.call("sendMessage", {"chat_id": 7, "text": "x"}, max_wait=0.3)
    assert 0 < caught.value.retry_after <= 1
    assert await gate.can_send(8)


async def test_a_call_is_tried_again_only_where_it_surely_did_not_happen(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    telegram.faults = Faults(server_error=1)
    with pytest.raises(DeadError, match="attempts"):
        await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert telegram.request_log.faults["server_error"] == 5
    telegram.faults = Faults(lost_answer=1)
    with pytest.raises(OutcomeUnknownError, match="may have happened"):
        await gate.call("sendMessage", {"chat_id": 8, "text": "x"})
    assert telegram.request_log.faults["lost_answer"] == 1


async def test_a_call_follows_a_group_that_migrated(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    new = telegram.world.migrate(-5, telegram.clock.now())
    assert (await gate.call("sendMessage", {"chat_id": -5, "text": "x"}))["chat"]["id"] == new


async def test_a_call_to_someone_who_blocked_the_bot_says_why(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    telegram.world.user_blocks(bot, 7, telegram.clock.now())
    with pytest.raises(DeadError) as caught:
        await gate.call("sendMessage", {"chat_id": 7, "text": "x"})
    assert (caught.value.reason, caught.value.chat_id) == ("blocked", 7)


@pytest.mark.usefixtures("no_bursts")
async def test_send_or_queue_sends_while_the_limits_allow_and_queues_then(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    first = await gate.send_or_queue(chat_id=7, text="now #1")
    second = await gate.send_or_queue(chat_id=7, text="later #2")
    assert isinstance(first, Receipt)
    assert isinstance(second, LiveTicket)
    async with gate.worker():
        await second.delivered(timeout=5)
    assert (telegram.report()["accepted"], telegram.report()["out_of_order"]) == (2, 0)


async def test_send_or_queue_does_not_overtake_what_waits(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    await gate.send(chat_id=7, text="first #1")
    second = await gate.send_or_queue(chat_id=7, text="second #2")
    assert isinstance(second, LiveTicket)
    async with gate.worker():
        await gate.drained()
    assert telegram.report()["out_of_order"] == 0


async def test_urgent_skips_the_wait(gate: Tidegate, clock: VirtualClock) -> None:
    await gate.send_many(({"chat_id": 1 + i, "text": "x"} for i in range(100)), priority="high")
    async with gate.worker():
        await clock.sleep(0.5)
        alarm = await gate.send(chat_id=999, text="Fire!", urgent=True)
        started = clock.monotonic()
        await alarm.delivered()
        assert clock.monotonic() - started < 1.1
    assert (await gate.stats()).urgent == 1


async def test_hooks_are_told_of_deliveries_and_deaths(
    clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    told: list[tuple[int | str, str]] = []

    @gate.on_delivered
    async def arrived(message: Message, result: Any) -> None:  # noqa: ANN401  (Telegram's result)
        told.append((message.chat_id, result["text"]))

    @gate.on_dead
    async def gone(message: Message, reason: str) -> None:
        told.append((message.chat_id, reason))
        raise RuntimeError("a hook that fails harms nobody")

    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    telegram.world.user_blocks(bot, 7, telegram.clock.now())
    async with gate:
        await gate.send_many(
            [{"chat_id": 7, "text": "one"}, {"chat_id": 7, "text": "two"}, {"chat_id": 8, "text": "x"}]
        )
        async with gate.worker():
            await gate.drained()
    assert sorted(told, key=str) == [(7, "blocked"), (7, "blocked"), (8, "x")]


async def test_a_hook_that_is_not_async_is_refused(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="async function"):
        gate.on_dead(print)  # type: ignore[arg-type]


async def test_a_gate_is_not_opened_twice_at_once(gate: Tidegate) -> None:
    with pytest.raises(ClosedError, match="open already"):
        await gate.__aenter__()


async def test_a_gate_that_was_closed_can_be_opened_again(
    clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    told: list[str] = []

    @gate.on_delivered
    async def note(message: Message, _: object) -> None:
        told.append(message.params["text"])

    for text in ("first", "second"):
        async with gate, gate.worker():
            await gate.send(chat_id=7, text=text)
            await gate.drained()

    assert told == ["first", "second"]


@pytest.fixture
def on_disk(clock: VirtualClock, telegram: SimulatedTelegram, tmp_path: Path) -> Callable[[], Tidegate]:
    """Makes gates of one file, as several processes have them."""

    def make() -> Tidegate:
        gate = Tidegate(tmp_path / "store.db", clock=clock, wire=TelegramWire(telegram, clock))
        gate.add_bot(TOKEN)
        return gate

    return make


async def test_a_gate_that_failed_to_open_while_another_sends_opens_once_that_one_has_left(
    on_disk: Callable[[], Tidegate], telegram: SimulatedTelegram
) -> None:
    gate = on_disk()
    async with on_disk() as other, other.worker():
        for _ in range(2):
            with pytest.raises(NotTheSenderError):
                await gate.start()

    await gate.start()
    await (await gate.send(chat_id=7, text="x")).delivered(timeout=5)
    await gate.stop()

    assert telegram.report()["accepted"] == 1


async def test_a_gate_whose_closing_was_cancelled_leaves_the_store_to_the_next(
    on_disk: Callable[[], Tidegate], clock: VirtualClock
) -> None:
    gate = on_disk()

    @gate.on_delivered
    async def stuck(_: Message, __: object) -> None:
        await asyncio.Event().wait()

    await gate.start()
    await (await gate.send(chat_id=7, text="x")).delivered()
    closing = asyncio.create_task(gate.stop())
    await clock.sleep(1)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()

    async with on_disk() as other, other.worker():
        await (await other.send(chat_id=8, text="x")).delivered(timeout=5)


@pytest.mark.parametrize("chat", [7, -5])
async def test_what_must_not_wait_goes_at_once_where_the_limits_allow_also_with_a_file(
    on_disk: Callable[[], Tidegate], clock: VirtualClock, chat: int
) -> None:
    async with on_disk() as gate, gate.worker():
        await gate.call("sendMessage", {"chat_id": chat, "text": "x"}, max_wait=0)
        await clock.sleep(5)

        assert isinstance(await gate.send_or_queue(chat_id=chat, text="x"), Receipt)


async def test_closing_tells_those_who_wait(clock: VirtualClock, telegram: SimulatedTelegram) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    async with gate:
        ticket = await gate.send(chat_id=7, text="x")
        waiting = [asyncio.create_task(ticket.delivered()), asyncio.create_task(gate.drained())]
        await clock.sleep(1)
    for task in waiting:
        with pytest.raises(ClosedError):
            await task
    with pytest.raises(ClosedError):
        await gate.drained()


async def test_a_group_that_migrates_while_its_bot_types_loses_nothing(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.faults = Faults(latency_in=Latency.parse("20"), latency_out=Latency.parse("20"))
    telegram.world.migrate(-5, clock.now())
    typing = {"chat_id": -5, "action": "typing"}
    async with gate.worker():
        await gate.send_many({"chat_id": -5, "text": f"#{i}"} for i in range(4))
        await asyncio.gather(*(gate.call("sendChatAction", typing) for _ in range(3)))
        async with clock.timeout(60):
            await gate.drained()
    report = telegram.report()
    assert ((await gate.stats()).delivered, report["out_of_order"], report["doubled"]) == (4, 0, 0)


async def test_a_chat_is_one_however_its_id_is_written(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    telegram.world.add_group(-5, "supergroup", "harbour")
    for chat_id in (1001, "1001", 1001, " 1001 ", "@harbour", -5, "-5"):
        await gate.call("sendMessage", {"chat_id": chat_id, "text": "x"})
    for bad in ([1], True, 0, "bob"):
        with pytest.raises(BadInputError, match="is no chat"):
            await gate.call("sendMessage", {"chat_id": bad, "text": "x"})
    with pytest.raises(BadInputError, match="not a Bot API method"):
        await gate.call("../getMe")
    assert telegram.report()["refused"] == 0


async def test_how_long_to_wait_is_never_forever(gate: Tidegate, telegram: SimulatedTelegram) -> None:
    telegram.faults = Faults(latency_in=Latency.parse("500"))
    first = asyncio.create_task(gate.call("sendMessage", {"chat_id": 7, "text": "x"}))
    await telegram.clock.sleep(0.1)
    with pytest.raises(LimitedError) as caught:
        await gate.call("sendMessage", {"chat_id": 7, "text": "x"}, max_wait=0.01)
    assert 0 < caught.value.retry_after < 10
    await first


async def test_send_or_queue_keeps_to_a_dedup_key(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    async with gate.worker():
        for _ in range(2):
            await gate.send_or_queue(chat_id=7, text="x", dedup_key="order 1")
            await clock.sleep(2)
    assert telegram.report()["accepted"] == 1


async def test_a_call_gives_up_when_its_wait_is_over(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.faults = Faults(server_error=1)
    with pytest.raises(NotDeliveredError):
        await gate.call("getChat", {"chat_id": 7}, max_wait=1)
    assert clock.monotonic() <= 1
    with pytest.raises(DeadError, match=r"attempts.*the last failure: .*server error \(5xx\)"):
        await gate.call("getMe")


async def test_direct_calls_go_on_though_slots_are_kept_and_nobody_claims(
    gate: Tidegate, clock: VirtualClock
) -> None:
    media = [{"type": "photo", "media": "https://example.org/a.png"}] * 10
    await gate.send_many({"chat_id": -5, "text": f"#{i}", "priority": "high"} for i in range(100))
    await gate.send(chat_id=-5, method="sendMediaGroup", media=media)
    for _ in range(40):  # leave the worker at many moments
        async with gate.worker():
            await clock.sleep(31)
        async with clock.timeout(130):
            await gate.call("sendMessage", {"chat_id": -5, "text": "direct"})


async def test_a_hook_that_never_ends_does_not_keep_the_gate_open(
    clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    seen: list[int | str] = []

    @gate.on_delivered
    async def stuck(message: Message, _: object) -> None:
        seen.append(message.chat_id)
        await asyncio.Event().wait()

    async with gate:
        await gate.send_many({"chat_id": 1 + i, "text": "x"} for i in range(10))
        async with gate.worker():
            await gate.drained()
        await clock.sleep(1)
    assert sorted(seen, key=str) == sorted(range(1, 11), key=str)  # one that is stuck holds up no other


async def test_a_ticket_says_why_it_was_not_delivered(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    soon = clock.now() + 1
    late = await gate.send(chat_id=1, text="x", expires_at=soon)
    taken_back = await gate.send(chat_id=2, text="x")
    old = await gate.send(chat_id=3, text="1", coalesce_key="k")
    await gate.send(chat_id=3, text="2", coalesce_key="k")
    assert await taken_back.cancel()
    why = await late.why()
    assert why is not None
    await clock.sleep(2)
    telegram.faults = Faults(lost_answer=1)
    parked = await gate.send(chat_id=4, text="x", on_unknown="park")
    async with gate.worker():
        for ticket, error in (
            (late, ExpiredError),
            (taken_back, WithdrawnError),
            (old, WithdrawnError),
            (parked, OutcomeUnknownError),
        ):
            with pytest.raises(error):
                await ticket.delivered(timeout=5)
        with pytest.raises(TimeoutError):
            await (await gate.send(chat_id=5, text="x", not_before=clock.now() + 60)).delivered(timeout=1)


async def test_a_message_is_taken_back_by_its_ticket_its_id_or_its_dedup_key(gate: Tidegate) -> None:
    first, second, third = [
        await gate.send(chat_id=7, text="x", delay=60, dedup_key=f"order {n}") for n in range(3)
    ]

    assert await gate.cancel(first)
    assert await gate.cancel(second.id)
    assert await gate.cancel(key="order 2")

    assert not await gate.cancel(key="order 2")
    assert not await gate.cancel(key="order 3")
    assert (await gate.stats()).cancelled == 3
    with pytest.raises(WithdrawnError):
        await third.delivered()
    with pytest.raises(BadInputError, match="cancel takes a ticket, or the dedup key"):
        await gate.cancel()


async def test_the_same_dedup_key_is_the_same_ticket(gate: Tidegate) -> None:
    first = await gate.send(chat_id=7, text="x", dedup_key="order 1")
    second = await gate.send(chat_id=7, text="x", dedup_key="order 1")
    assert (second.id, first.fresh, second.fresh) == (first.id, True, False)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"chat_id": 7, "text": ""}, "text is empty"),
        ({"chat_id": 7, "text": "  "}, "text is empty"),
        ({"chat_id": 7}, "text is empty"),
        ({"chat_id": 7, "text": 5}, "text must be a string, such as"),
        ({"chat_id": 0, "text": "x"}, "chat_id 0 is no chat"),
        ({"text": "x"}, "chat_id is missing: give a number"),
        ({"chat_id": "bob", "text": "x"}, "chat_id 'bob' is no chat"),
        ({"chat_id": True, "text": "x"}, "chat_id True is no chat"),
        ({"chat_id": 7, "text": "x", "priority": "urgent"}, "choose one of high, normal, low"),
        ({"chat_id": 7, "text": "x", "expires_at": 1.0}, "in the past"),
        ({"chat_id": 7, "text": "x", "expires_at": 9e9, "not_before": 9.1e9}, "never be sent"),
        ({"chat_id": 7, "text": "x" * 4097}, "at most 4096"),
        ({"chat_id": 7, "text": "x", "entities": "y" * 5_000_000}, "bytes"),
        ({"chat_id": 7, "text": "x", "entities": object()}, "cannot be sent as JSON"),
        ({"chat_id": 7, "text": "x", "max_attempts": 0}, "max_attempts"),
        ({"chat_id": 7, "text": "x", "max_attempts": "many"}, "max_attempts"),
        ({"chat_id": 7, "text": "x", "on_unknown": "shrug"}, "on_unknown"),
        ({"chat_id": 7, "text": "x", "dedup_for": -1, "dedup_key": "k"}, "dedup_for"),
        ({"chat_id": 10**30, "text": "x"}, "is no chat"),
        ({"chat_id": "9" * 5_000, "text": "x"}, "is no chat"),
        ({"chat_id": 7, "text": "x", "entities": 10**30}, "cannot be sent as JSON"),
        ({"chat_id": 7, "text": "\ud800"}, "cannot be sent as JSON"),
        ({"chat_id": 7, "text": "x", "not_before": float("nan")}, "not_before is no time"),
        ({"chat_id": 7, "text": "x", "expires_at": float("inf")}, "expires_at is no time"),
        ({"chat_id": 7, "text": "x", "dedup_key": ""}, "dedup_key is empty"),
        ({"chat_id": 7, "text": "x", "coalesce_key": ""}, "coalesce_key is empty"),
        ({"chat_id": 7, "text": "x", "dedup_key": "\ud800"}, "dedup_key holds what is no text"),
        ({"chat_id": 7, "text": "x", "dedup_key": "k\0x"}, "dedup_key holds a NUL"),
        ({"chat_id": 7, "text": "x", "coalesce_key": "\0"}, "coalesce_key holds a NUL"),
        ({"chat_id": 7, "method": "send message"}, "not a Bot API method"),
        ({"chat_id": 7, "method": 5}, "not a Bot API method"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_stored(
    gate: Tidegate, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInputError, match=reason):
        await gate.send(**fields)
    with pytest.raises(BadInputError):
        await gate.send_many([{"chat_id": 1, "text": "good"}, fields])
    assert (await gate.stats()).waiting == 0


@pytest.mark.parametrize("items", [None, 5, [5], ["chat_id"]])
async def test_what_is_no_list_of_messages_is_refused(gate: Tidegate, items: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match=r"iterable|mapping"):
        await gate.send_many(items)


async def test_a_long_text_with_markup_is_telegrams_to_judge(gate: Tidegate) -> None:
    await gate.send(chat_id=7, text="x" * 4097, parse_mode="HTML")
    await gate.send(chat_id="-5", method="sendPhoto", photo=File(content=b"x" * 2_000_000, name="a.png"))
    assert (await gate.stats()).waiting == 2


async def test_which_bot_must_be_clear(clock: VirtualClock, telegram: SimulatedTelegram) -> None:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    with pytest.raises(ClosedError, match="not open"):
        await gate.send(chat_id=7, text="x")
    async with gate:
        with pytest.raises(BadInputError, match="no bot was added"):
            await gate.send(chat_id=7, text="x")
        one, two = gate.add_bot("1:a"), gate.add_bot("2:b")
        with pytest.raises(BadInputError, match="2 bots were added"):
            await gate.send(chat_id=7, text="x")
        with pytest.raises(BadInputError, match="bot 3 is not known"):
            await gate.send(chat_id=7, text="x", bot=3)
        await gate.send(chat_id=7, text="x", bot=one)
        await gate.send(chat_id=7, text="x", bot=two.id)


@pytest.mark.parametrize("token", ["", "42", "42:", "nonsense", "42:a b"])
async def test_what_is_no_token_is_refused_without_being_repeated(clock: VirtualClock, token: str) -> None:
    with pytest.raises(BadInputError) as caught:
        Tidegate("memory://", clock=clock).add_bot(token)
    assert not token or token not in str(caught.value).replace("123456:ABC-DEF", "")


async def test_a_token_is_in_no_text(gate: Tidegate) -> None:
    bot = gate.add_bot("77:SECRET")
    ticket = await gate.send(chat_id=7, text="x", bot=bot)
    record = await gate.outbox.find(ticket.id)
    stats = await gate.stats()
    texts = [repr(bot), str(bot), repr(ticket), repr(stats), repr(record), repr(gate.core.sender.bots)]
    assert not [text for text in texts if "SECRET" in text]


async def test_a_token_is_not_in_what_rich_shows(gate: Tidegate) -> None:
    bot = gate.add_bot("77:SECRET")
    shown = pretty_repr([bot, gate.bots(), gate.core.sender.bots])

    assert "BotAccess" in shown
    assert "SECRET" not in shown


def test_an_unknown_store_is_refused_without_its_password() -> None:
    with pytest.raises(BadInputError, match="memory://") as caught:
        Tidegate("mysql://:hunter2@host/0")
    assert "hunter2" not in str(caught.value)


async def test_a_token_in_the_wrong_place_is_not_repeated(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="what add_bot gave") as caught:
        await gate.send(chat_id=7, text="x", bot="42:SECRET")  # type: ignore[arg-type]
    assert "SECRET" not in str(caught.value)


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_BOT_RATE", "25/1")
    monkeypatch.setenv("TIDEGATE_GROUP_RATE", "10/60")
    assert Settings.read().rules() == Rules(bot=Rate(25, 1), group=Rate(10, 60))
    monkeypatch.setenv("TIDEGATE_BOT_RATE", "25/")
    with pytest.raises(BadInputError, match="TIDEGATE_BOT_RATE"):
        Settings.read()


class ConflictingWire(BotApiTransport):
    """Another program takes the updates of the bot: every call is a conflict, which may pass."""

    async def call(self, *_: object, **__: object) -> ApiAnswer:
        return ApiAnswer(409, {"ok": False, "error_code": 409, "description": "Conflict"})

    async def close(self) -> None:
        pass


async def test_retries_and_their_delays_are_both_the_settings_of_the_process_that_sends(
    clock: VirtualClock, tmp_path: Path
) -> None:
    def gate_with(**settings: float) -> Tidegate:
        read = Settings.model_validate(settings)
        gate = Tidegate(tmp_path / "bot.db", clock=clock, wire=ConflictingWire(), settings=read)
        gate.add_bot(TOKEN)
        return gate

    async with gate_with(telegram_max_retries=9, telegram_base_delay=1_000) as producer:
        ticket = await producer.send(chat_id=1, text="x")
    async with gate_with(telegram_max_retries=2, telegram_base_delay=0.5) as sender, sender.worker():
        await clock.sleep(10)
        record = await sender.outbox.find(ticket.id)

    assert record is not None
    assert (record.state, record.attempts) == ("dead", 2)


def test_redis_url_alone_chooses_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_STORE", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://host:6379/3")
    assert Tidegate().core.store_name == "redis://host:6379/3"
    assert Tidegate("mine.db").core.store_name == "mine.db"
    monkeypatch.setenv("TIDEGATE_STORE", "other.db")
    assert Tidegate().core.store_name == "other.db"


def test_a_file_that_redis_url_overlooks_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_STORE", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis://host:6379/3")
    Tidegate()
    assert not caplog.records

    (tmp_path / "tidegate.db").touch()
    Tidegate()
    Tidegate("mine.db")

    [record] = caplog.records
    assert "tidegate.db in this folder is not used" in record.getMessage()


async def test_a_throttled_notifier_keeps_its_rate(clock: VirtualClock, telegram: SimulatedTelegram) -> None:
    gate = Tidegate(
        "memory://", clock=clock, wire=TelegramWire(telegram, clock), rules=Rules(bot=Rate(25, 1))
    )
    gate.add_bot(TOKEN)
    async with gate, gate.worker():
        producers = [
            gate.send_many([{"chat_id": 1000 * p + i, "text": "x"} for i in range(1, 51)]) for p in range(4)
        ]
        await asyncio.gather(*producers)
        await gate.drained()
    assert telegram.report()["peaks"]["bot"] <= 25
    assert clock.monotonic() == pytest.approx(200 / 25, abs=1)


async def test_a_worker_that_stops_finishes_what_is_in_flight(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.faults = Faults(latency_in=Latency.parse("500"), latency_out=Latency.parse("500"))
    await gate.send_many({"chat_id": 1 + i, "text": f"#{i}"} for i in range(100))
    async with gate.worker(grace=5):
        await clock.sleep(0.6)
    stats = await gate.stats()
    assert stats.sending == 0
    assert stats.delivered == telegram.report()["accepted"] > 0
    assert stats.delivered + stats.waiting == 100
    async with gate.worker():
        await gate.drained()
    assert telegram.report()["doubled"] == 0
    assert (await gate.stats()).delivered == 100


async def test_a_worker_that_may_not_wait_hands_back_what_left_as_unknown(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.faults = Faults(latency_in=Latency.parse("5000"))
    parked = await gate.send(chat_id=7, text="x", on_unknown="park")
    async with gate.worker(grace=1):
        await clock.sleep(0.1)
    with pytest.raises(OutcomeUnknownError):
        await parked.delivered()


async def test_a_worker_needs_room(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="at least 1"):
        gate.worker(concurrency=0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"throttle": "30/60"}, "throttle is True, False or ThrottleRules"),
        ({"max_wait": "5"}, "max_wait is a number of seconds"),
        ({"grace": -1}, "grace is a number of seconds"),
        ({"updates": "durabel"}, "updates is 'library' or 'durable', not 'durabel'"),
        ({"conversations": True}, "conversations is 'library' or 'store', not True"),
    ],
)
async def test_terms_that_would_fail_later_are_refused_at_once(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        Tidegate("memory://").attach(None, Bot("42:token"), **wrong)


async def test_a_hook_or_a_port_that_cannot_be_used_is_refused_at_once() -> None:
    gate: Any = Tidegate("memory://")
    with pytest.raises(BadInputError, match="needs a secret"):
        gate.hook("payments", None)
    with pytest.raises(BadInputError, match="a port is a number"):
        await gate.serve(port="8080")


async def test_a_gate_whose_closing_is_cancelled_lets_go_of_its_store(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    gate = Tidegate(tmp_path / "bot.db", clock=clock)
    await gate.core.open()
    await gate.outbox.start_sending()
    monkeypatch.setattr(gate.core._tasks, "stop", cancelled)  # noqa: SLF001
    with pytest.raises(asyncio.CancelledError):
        await gate.core.close()

    async with Tidegate(tmp_path / "bot.db", clock=clock) as other:
        await other.outbox.start_sending()


async def test_a_token_that_is_not_set_is_refused_by_name(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="that is not a bot's token"):
        gate.add_bot(None)  # type: ignore[arg-type]


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({5: 1}, "the message has the key 5 of type int"),
        ({b"note": 1}, "of type bytes: keys are texts"),
        (
            {"reply_markup": {"keyboard": [{0.5: 1}]}},
            r"reply_markup\.keyboard\[0\] has the key 0.5 of type float",
        ),
        ({"entities": float("nan")}, "entities is nan"),
        ({"entities": [float("inf")]}, r"entities\[0\] is inf"),
        ({"entities": CYCLE}, "contains itself"),
        ({"entities": 2**64}, "entities cannot be sent as JSON: the number has more than 64 bits"),
        ({"entities": "\ud800"}, "entities is no valid text"),
        ({"entities": {1, 2}}, "entities: a set cannot be sent as JSON"),
        ({"reply_markup": File(content="text")}, "reply_markup: the content of a File is bytes"),  # type: ignore[arg-type]
    ],
)
async def test_poison_is_refused_by_every_way_in(
    gate: Tidegate, telegram: SimulatedTelegram, params: dict[Any, Any], reason: str
) -> None:
    item = {"chat_id": 7, "text": "x", **params}

    with pytest.raises(BadInputError, match=reason):
        await gate.send_many([{"chat_id": 7, "text": "good"}, item])
    with pytest.raises(BadInputError, match=reason):
        await gate.call("sendMessage", item)
    if all(isinstance(name, str) for name in params):
        with pytest.raises(BadInputError, match=reason):
            await gate.send(**item)
        with pytest.raises(BadInputError, match=reason):
            await gate.send_or_queue(**item)

    assert (await gate.stats()).waiting == 0
    async with gate.worker():
        await (await gate.send(chat_id=7, text="x")).delivered(timeout=5)
    assert telegram.report()["accepted"] == 1


async def test_parameters_of_a_call_that_are_no_mapping_are_refused(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="the parameters of a call are a mapping"):
        await gate.call("sendMessage", [("chat_id", 1)])  # type: ignore[arg-type]


@pytest.mark.parametrize("store", [5, 0, b"tidegate.db", ["tidegate.db"], object()])
def test_a_store_that_is_neither_text_nor_path_is_refused(store: Any) -> None:  # noqa: ANN401  (what a typo may be)
    with pytest.raises(BadInputError, match="a store is a text or a path, not of type"):
        Tidegate(store)


@pytest.mark.usefixtures("no_bursts")
async def test_direct_calls_count_in_stats_also_5xx_and_those_given_up_at_max_wait(
    gate: Tidegate, telegram: SimulatedTelegram
) -> None:
    message = {"chat_id": 7, "text": "x"}
    await gate.call("sendMessage", message)
    with pytest.raises(LimitedError):
        await gate.call("sendMessage", message, max_wait=0.3)
    telegram.set_limits(Limits(burst=1, private=Rate(1, 30)))
    await gate.call("sendMessage", message)
    with pytest.raises(LimitedError):  # refused, and the wait is too long
        await gate.call("sendMessage", message, max_wait=5)
    telegram.faults = Faults(server_error=1)
    with pytest.raises(NotDeliveredError):  # failed, and there is no time for another attempt
        await gate.call("getChat", {"chat_id": 7}, max_wait=0)

    stats = await gate.stats()
    assert (stats.direct, stats.direct_refused, stats.direct_failed, stats.direct_given_up) == (4, 1, 1, 3)
