"""A python-telegram-bot application whose updates go through the inbox, in virtual time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from telegram import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Update, User
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    TypeHandler,
)

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.errors import BadInputError, NotTheSenderError, StoreAwayError
from tidegate.inbound.inbox import bot_source
from tidegate.settings import Settings
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import OTHER, POLL, Build, Context, running, text_of


@pytest.fixture
async def gate(clock: VirtualClock, telegram: SimulatedTelegram) -> Tidegate:
    settings = Settings(tidegate_handler_deadline=60)
    return Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock), settings=settings)


async def test_one_chat_is_handled_in_order_and_others_beside_it(
    build: Build, person: Callable[[int], Person], clock: VirtualClock
) -> None:
    seen: list[tuple[int, str, float]] = []
    began = clock.monotonic()

    async def handle(update: Update, _: Context) -> None:
        await clock.sleep(10)
        assert update.effective_chat is not None
        seen.append((update.effective_chat.id, text_of(update), clock.monotonic() - began))

    async with running(build(handle)):
        ann, ben = person(1), person(2)
        for text in ("one", "two", "three"):
            ann.says(text)
        ben.says("hello")
        await clock.sleep(45)
    assert [text for chat, text, _ in seen if chat == 1] == ["one", "two", "three"]
    assert next(at for chat, _, at in seen if chat == 2) < 12


async def test_what_was_fetched_is_held_before_telegram_hears_of_it(
    build: Build,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    telegram: SimulatedTelegram,
) -> None:
    away = True
    accept = gate.core.handler_registry.inbox.accept

    async def refuse(items: Any) -> list[bool]:  # noqa: ANN401
        if away:
            raise StoreAwayError("the store cannot be reached")
        return await accept(items)

    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    gate.core.handler_registry.inbox.accept = refuse  # type: ignore[method-assign]
    async with running(build(handle)):
        person(1).says("one")
        await clock.sleep(10)
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        assert len(bot.updates) == 1  # still Telegram's
        away = False
        await clock.sleep(5)
        assert len(bot.updates) == 0
    assert seen == ["one"]


async def test_an_application_that_stops_puts_back_what_it_has_not_ended_and_may_repeat(
    build: Build, person: Callable[[int], Person], clock: VirtualClock, gate: Tidegate
) -> None:
    ended: list[str] = []

    @gate.repeatable
    async def handle(update: Update, _: Context) -> None:
        await clock.sleep(3 if text_of(update) == "short" else 30)
        ended.append(text_of(update))

    app = build(handle, grace=5)
    async with gate, running(app):
        person(1).says("long")
        person(1).says("after it")
        person(2).says("short")
        await clock.sleep(1)
        began = clock.monotonic()
        assert app.updater is not None
        await app.updater.stop()
        await app.stop()
        assert clock.monotonic() - began == pytest.approx(5, abs=0.5)
        assert ended == ["short"]
        assert (await gate.core.handler_registry.stats()).waiting == 2
        await app.updater.start_polling(timeout=POLL)
        await app.start()
        await clock.sleep(70)
    assert ended == ["short", "long", "after it"]


async def test_a_handler_that_never_returns_is_cancelled_and_named(
    build: Build,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []

    async def hang(update: Update, _: Context) -> None:
        seen.append(text_of(update))
        if text_of(update) == "one":
            await asyncio.Event().wait()

    async with gate, running(build(hang)):
        person(1).says("one")
        person(1).says("two")
        await clock.sleep(65)
        parked = await gate.core.handler_registry.inbox.parked()
    assert seen == ["one", "two"]
    assert "took longer than 60 s and was cancelled in hang (ptb/test_ptb_updates.py" in parked[0].reason
    assert parked[0].reason in caplog.text


async def test_an_error_reaches_the_applications_own_handlers_and_the_update_is_done(
    build: Build, person: Callable[[int], Person], clock: VirtualClock, gate: Tidegate
) -> None:
    errors: list[Exception | None] = []

    async def fail(_update: Update, _: Context) -> None:
        raise LookupError("no such tea")

    async def note(_update: object, context: Context) -> None:
        errors.append(context.error)

    app = build(fail)
    app.add_error_handler(note)
    async with gate, running(app):
        person(1).says("one")
        await clock.sleep(1)
        stats = await gate.core.handler_registry.stats()
    assert [str(error) for error in errors] == ["no such tea"]
    assert (stats.waiting, stats.handling, stats.parked) == (0, 0, 0)


async def test_an_update_that_is_handled_again_says_nothing_twice(
    build: Build, person: Callable[[int], Person], clock: VirtualClock, gate: Tidegate
) -> None:
    first = True

    @gate.repeatable
    async def order(update: Update, _: Context) -> None:
        nonlocal first
        assert update.message is not None
        await gate.queue(update.message.reply_text("Your order is written down"))
        if first:
            first = False
            await asyncio.Event().wait()  # until the application stops
        await gate.queue(update.message.reply_text("It is on its way"))

    app = build(order, grace=1)
    async with gate, running(app):
        ann = person(1)
        ann.says("tea")
        await clock.sleep(5)
        await app.stop()
        await app.start()
        await clock.sleep(10)
    assert [message["text"] for message in ann.heard] == ["Your order is written down", "It is on its way"]


async def test_replies_go_first_without_another_call(
    build: Build, person: Callable[[int], Person], clock: VirtualClock, gate: Tidegate
) -> None:
    priorities: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        assert update.message is not None
        ticket = await gate.queue(update.message.reply_text("hi"))
        message = await gate.outbox.find(ticket.id)
        assert message is not None
        priorities.append(message.message.priority.name)

    async with running(build(handle)):
        person(1).says("one")
        await clock.sleep(1)
    assert priorities == ["HIGH"]


async def test_an_update_that_is_put_by_hand_is_held_and_known_again(
    build: Build, clock: VirtualClock, person: Callable[[int], Person], telegram: SimulatedTelegram
) -> None:
    """As a webhook of one's own does it."""
    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    app = build(handle)
    person(1).says("one")
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    raw = bot.updates.first(1)[0]
    async with app:
        await app.update_queue.put(Update.de_json(raw, app.bot))  # before it has started
        await app.start()
        await app.update_queue.put(Update.de_json(raw, app.bot))
        with pytest.raises(BadInputError, match="await put"):
            app.update_queue.put_nowait(Update.de_json(raw, app.bot))
        await clock.sleep(1)
        await app.stop()
    assert seen == ["one"]


async def test_what_is_no_update_goes_straight_to_the_application(build: Build, clock: VirtualClock) -> None:
    seen: list[object] = []

    async def note(update: int, _: Context) -> None:
        await clock.sleep(10 - update)
        seen.append(update)

    async def never(_update: Update, _: Context) -> None:
        raise AssertionError

    app = build(never)
    app.add_handler(TypeHandler(int, note))
    async with app:
        await app.start()
        await app.update_queue.put(1)
        await app.update_queue.put(2)
        await clock.sleep(1)
        await app.stop()
    assert seen == [1, 2]


async def test_one_who_floods_is_held_and_told_once(
    build: Build, person: Callable[[int], Person], clock: VirtualClock
) -> None:
    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    async with running(build(handle)):
        ann = person(1)
        for number in range(50):
            ann.says(str(number))
        await clock.sleep(5)
    assert len(seen) == 30
    assert len(ann.heard) == 1


async def test_a_process_that_does_not_lead_neither_polls_nor_handles(
    build: Build,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    telegram: SimulatedTelegram,
) -> None:
    led_by_another = True
    lease = gate.core.handler_registry.inbox.leases.lease

    async def ask(name: str, seconds: float) -> bool:
        return not led_by_another and await lease(name, seconds)

    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    gate.core.handler_registry.inbox.leases.lease = ask  # type: ignore[method-assign]
    app = build(handle)
    async with running(app):
        person(1).says("one")
        await clock.sleep(10)
        assert not [entry for entry in telegram.request_log.log if entry.method == "getUpdates"]
        assert not gate.core.handler_registry.has_handler(bot_source(42))
        led_by_another = False
        await clock.sleep(2)
        assert seen == ["one"]
        led_by_another = True
        await clock.sleep(10)
        assert not gate.core.handler_registry.has_handler(bot_source(42))


async def test_a_second_process_waits_for_the_end_of_the_first(
    build: Build,
    person: Callable[[int], Person],
    clock: VirtualClock,
    gate: Tidegate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = gate.core.start
    ends_at = clock.monotonic() + 20

    async def refuse() -> None:
        if clock.monotonic() < ends_at:
            raise NotTheSenderError("process 17 sends for this store")
        await start()

    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    monkeypatch.setattr(gate.core, "start", refuse)
    person(1).says("one")
    with caplog.at_level(logging.WARNING):
        async with running(build(handle)):
            assert clock.monotonic() == pytest.approx(ends_at, abs=1.1)
            await clock.sleep(1)
    assert seen == ["one"]
    said = [record.message for record in caplog.records if "waits to take over" in record.message]
    assert said == ["process 17 sends for this store. This one waits to take over"]


async def test_of_two_applications_of_a_gate_one_may_stop(
    telegram: SimulatedTelegram, clock: VirtualClock, build: Build
) -> None:
    seen: list[tuple[int, str]] = []

    async def handle(update: Update, context: Context) -> None:
        seen.append((context.bot.id, text_of(update)))

    people = {
        token: Person(telegram, bot, 1)
        for token in (TOKEN, OTHER)
        if (bot := telegram.world.bot(token)) is not None
    }
    async with running(build(handle, OTHER)):
        async with running(build(handle)):
            for person in people.values():
                person.says("one")
            await clock.sleep(1)
        for person in people.values():
            person.says("two")
        await clock.sleep(1)
    assert sorted(seen) == [(42, "one"), (43, "one"), (43, "two")]


async def test_an_application_that_begins_again_takes_what_came_meanwhile(
    build: Build, person: Callable[[int], Person], clock: VirtualClock
) -> None:
    seen: list[str] = []

    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    app, ann = build(handle), person(1)
    for text in ("one", "two"):
        async with running(app):
            ann.says(text)
            await clock.sleep(1)
        ann.says(f"after {text}")
    async with running(app):
        await clock.sleep(1)
    assert seen == ["one", "after one", "two", "after two"]


async def test_a_button_may_stand_for_any_object(
    build: Build, person: Callable[[int], Person], clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pressed: list[object] = []

    async def offer(update: Update, _: Context) -> None:
        assert update.message is not None
        button = InlineKeyboardButton("Two teas", callback_data=("tea", 2))
        await update.message.reply_text("What may it be?", reply_markup=InlineKeyboardMarkup([[button]]))

    async def note(update: Update, _: Context) -> None:
        assert update.callback_query is not None
        pressed.append(update.callback_query.data)

    app, ann = build(offer, arbitrary_callback_data=True), person(1)
    app.add_handler(CallbackQueryHandler(note))
    async with running(app):
        ann.says("one")
        await clock.sleep(2)
        ann.presses()
        await clock.sleep(1)
        assert pressed == [("tea", 2)]
        user = User(1, "Ann", is_bot=False)
        by_webhook = Update(10**6, callback_query=CallbackQuery("1", user, "1", data=("tea", 3)))  # type: ignore[arg-type]
        await app.update_queue.put(by_webhook)
        await clock.sleep(1)
    assert pressed == [("tea", 2), ("tea", 3)]
    assert "updates that come by webhook are not stored" in caplog.text


async def test_what_is_chosen_after_it_would_break_it(limiter: TidegateLimiter) -> None:
    builder = limiter.equip(Application.builder().token(TOKEN))
    with pytest.raises(BadInputError, match="attach comes last"):
        builder.concurrent_updates(256).build()


async def test_a_limiter_equips_one_application(build: Build, bot_of: Any, limiter: TidegateLimiter) -> None:  # noqa: ANN401
    async def handle(_update: Update, _: Context) -> None:
        raise AssertionError

    with pytest.raises(BadInputError, match="with a token"):
        limiter.equip(Application.builder().bot(bot_of(limiter)))
    build(handle)
    with pytest.raises(BadInputError, match="each needs its own"):
        build(handle)
