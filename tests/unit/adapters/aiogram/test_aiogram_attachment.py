"""A gate opens, delivers and closes with the dispatcher it is attached to."""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiogram import Bot, Dispatcher, Router
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import SendMessage
from aiogram.types import Chat, ErrorEvent, Message, Update, User

from tidegate import Tidegate
from tidegate.errors import BadInputError, ClosedError
from tidegate.model import Priority
from unit.adapters.aiogram.stage import TOKEN, SimSession, Stage

ALICE, BOB, GROUP = 1001, 1002, -100
Start = Callable[[Stage], Awaitable[None]]


async def start(stage: Stage) -> None:
    await stage.dispatcher.emit_startup(bot=stage.bot, **stage.dispatcher.workflow_data)


async def stop(stage: Stage) -> None:
    await stage.dispatcher.emit_shutdown(bot=stage.bot, **stage.dispatcher.workflow_data)


async def write(stage: Stage, user: int, text: str = "hello", chat: int | None = None) -> object:
    message = Message(
        message_id=1,
        date=dt.datetime.now(dt.UTC),  # noqa: TID251  (aiogram wants a date, nobody reads it)
        chat=Chat(id=chat or user, type="group" if chat else "private"),
        from_user=User(id=user, is_bot=False, first_name="Alice"),
        text=text,
    )
    return await stage.dispatcher.feed_update(stage.bot, Update(update_id=1, message=message))


async def test_what_was_queued_is_delivered_while_the_dispatcher_runs(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)

    await start(stage)
    ticket = await stage.gate.queue(SendMessage(chat_id=ALICE, text="hi").as_(stage.bot))
    sent = await ticket.delivered(timeout=10)
    await stop(stage)

    assert sent.text == "hi"
    with pytest.raises(ClosedError):
        await stage.gate.send(bot=42, chat_id=ALICE, text="too late")


async def test_hooks_of_others_can_send_before_and_after(stage: Stage) -> None:
    said: list[str] = []

    async def say(bot: Bot, router: Router) -> None:
        sent = await bot.send_message(ALICE if router.name == "shop" else BOB, "hello or goodbye")
        said.append(str(sent.text))

    shop = Router(name="shop")
    stage.dispatcher.startup.register(say)  # before the gate's own
    stage.gate.attach(stage.dispatcher, stage.bot)
    stage.dispatcher.include_router(shop)
    for router in (stage.dispatcher, shop):
        router.shutdown.register(say)

    await start(stage)
    await stop(stage)

    assert len(said) == 3
    assert stage.refused == 0


async def test_a_call_after_the_dispatcher_has_stopped_is_told_so(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)
    await start(stage)
    await stop(stage)

    with pytest.raises(ClosedError, match="came too late"):
        await stage.bot.send_message(ALICE, "x")
    assert (await stage.bot.get_me()).id == 42  # what has no limits needs no gate


@pytest.fixture
def seen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, Priority]]:
    """To whom each call goes, and how urgently."""
    seen: list[tuple[object, Priority]] = []
    turn = stage.gate.core.direct.turn

    def watch(*args: Any, **options: Any) -> object:  # noqa: ANN401  (as `turn` has them)
        seen.append((args[2]["chat_id"], options["priority"]))
        return turn(*args, **options)

    monkeypatch.setattr(stage.gate.core.direct, "turn", watch)
    return seen


async def test_a_reply_is_high_and_anything_else_is_normal(
    stage: Stage, seen: list[tuple[object, Priority]]
) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)
    stage.telegram.world.add_group(GROUP)

    @stage.dispatcher.message()
    async def handle(message: Message, bot: Bot, gate: Tidegate) -> SendMessage:
        assert gate is stage.gate
        await bot.send_message(BOB, "somebody wrote")
        if message.chat.id != ALICE:
            await bot.send_message(ALICE, "in private")
        return message.answer("a reply, returned")

    await start(stage)
    assert await write(stage, ALICE) is None
    assert await write(stage, ALICE, chat=GROUP) is None
    await stage.bot.send_message(ALICE, "out of the blue")
    await stop(stage)

    assert seen == [
        (BOB, Priority.NORMAL),
        (ALICE, Priority.HIGH),
        (BOB, Priority.NORMAL),
        (ALICE, Priority.HIGH),
        (GROUP, Priority.HIGH),
        (ALICE, Priority.NORMAL),
    ]


async def test_a_reply_of_an_error_handler_to_a_failed_update_is_still_high(
    stage: Stage, seen: list[tuple[object, Priority]]
) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)

    @stage.dispatcher.message()
    async def handle(_: Message) -> None:
        raise RuntimeError("out of tea")

    @stage.dispatcher.errors()
    async def apologise(error: ErrorEvent) -> None:
        assert error.update.message is not None
        await error.update.message.answer("sorry")

    await start(stage)
    await write(stage, ALICE)
    await stop(stage)

    assert seen == [(ALICE, Priority.HIGH)]


async def test_a_queued_reply_is_high_unless_told_otherwise(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)
    queued: list[Any] = []

    @stage.dispatcher.message()
    async def handle(message: Message, gate: Tidegate) -> None:
        queued.append(await gate.queue(message.answer("hi")))
        queued.append(await gate.queue(message.answer("hi"), priority="low"))

    await start(stage)
    await write(stage, ALICE)
    queued.append(await stage.gate.queue(SendMessage(chat_id=ALICE, text="x").as_(stage.bot)))
    records = [await stage.gate.outbox.find(ticket.id) for ticket in queued]
    await stop(stage)

    assert [record.message.priority for record in records if record] == ["high", "low", "normal"]


@pytest.mark.usefixtures("no_bursts")
async def test_a_handler_that_waits_for_its_turn_may_end_before_the_gate_closes(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)

    @stage.dispatcher.message()
    async def handle(message: Message) -> None:
        for text in "abc":
            await message.answer(text)

    await start(stage)
    handling = asyncio.create_task(write(stage, ALICE))
    await stage.clock.sleep(0.1)
    await stop(stage)
    await handling

    assert stage.arrivals() == [0, 1, 2]


async def test_a_handler_that_never_ends_does_not_keep_the_gate_open(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)

    @stage.dispatcher.message()
    async def handle(message: Message) -> None:
        await stage.clock.sleep(3600)
        await message.answer("at last")

    await start(stage)
    handling = asyncio.create_task(write(stage, ALICE))
    await stage.clock.sleep(0.1)
    await stop(stage)

    assert stage.clock.monotonic() < 15
    with pytest.raises(ClosedError, match="came too late"):
        await handling


async def test_a_broadcast_ends_with_the_dispatcher_and_keeps_nobody_waiting(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)

    @stage.dispatcher.message()
    async def handle(_: Message, gate: Tidegate) -> None:
        campaign = await gate.broadcast("news", range(1, 5_000), "hello")
        await campaign.finished()

    await start(stage)
    handling = asyncio.create_task(write(stage, ALICE))
    await stage.clock.sleep(2)
    await stop(stage)

    with pytest.raises(ClosedError, match="call it again to resume"):
        await handling
    assert stage.clock.monotonic() < 4


async def test_a_dispatcher_that_starts_again_opens_the_gate_again(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot)
    for text in ("first", "second"):
        await start(stage)
        ticket = await stage.gate.queue(SendMessage(chat_id=ALICE, text=text).as_(stage.bot))
        assert (await ticket.delivered(timeout=10)).text == text
        await stop(stage)


async def test_two_dispatchers_share_a_gate_that_closes_with_the_last(stage: Stage) -> None:
    other = Dispatcher()
    stage.gate.attach(stage.dispatcher, stage.bot)
    stage.gate.attach(other, stage.bot)
    await start(stage)
    await other.emit_startup(bot=stage.bot)

    await stop(stage)
    await stage.bot.send_message(ALICE, "still open")
    await other.emit_shutdown(bot=stage.bot)

    with pytest.raises(ClosedError):
        await stage.bot.send_message(ALICE, "closed")


async def test_attaching_twice_changes_nothing(stage: Stage) -> None:
    for _ in range(2):
        stage.gate.attach(stage.dispatcher, stage.bot)

    assert len(stage.session.middleware) == 1
    assert len(stage.dispatcher.startup.handlers) == 1


async def test_a_bot_belongs_to_one_gate(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)

    with pytest.raises(BadInputError, match="attached to another gate"):
        Tidegate("memory://").attach(None, stage.bot)


@pytest.mark.parametrize("wrong", [(), ("42:token",), (None,)])
async def test_attaching_to_what_is_no_bot_is_told(stage: Stage, wrong: tuple[Any, ...]) -> None:
    with pytest.raises(BadInputError, match="dispatcher and its bots") as error:
        stage.gate.attach(stage.dispatcher, *wrong)
    assert "token" not in str(error.value)

    with pytest.raises(BadInputError, match="Dispatcher"):
        stage.gate.attach(stage.bot, stage.bot)  # type: ignore[call-overload]


async def test_queued_messages_go_where_the_bot_goes(stage: Stage) -> None:
    servers = {
        "http://127.0.0.1:1": TelegramAPIServer.from_base("http://127.0.0.1:1"),
        "https://test.local/bot{token}/test/{method}": TelegramAPIServer(
            base="https://test.local/bot{token}/test/{method}", file=""
        ),
    }
    for number, server in enumerate(servers.values(), 1):
        stage.gate.attach(None, Bot(f"{number}:x", session=AiohttpSession(api=server)))

    assert [bot.api_url for bot in stage.gate.bots()] == list(servers)


async def test_bots_that_share_a_session_are_paced_each_for_itself(stage: Stage) -> None:
    stage.tokens.add("43:other")
    session = SimSession(stage.telegram)
    bots = [Bot(token, session=session) for token in (TOKEN, "43:other")]
    stage.gate.attach(None, *bots)
    async with stage.gate:
        for bot in bots:
            await bot.send_message(ALICE, "hi")

    assert stage.clock.monotonic() == 0
