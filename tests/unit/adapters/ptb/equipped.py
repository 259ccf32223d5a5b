"""Applications of python-telegram-bot whose updates go through the inbox, in virtual time."""

import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from telegram import Chat, Message, Update, User
from telegram.ext import Application, CallbackContext, ExtBot, MessageHandler, filters

from simulated import TOKEN
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.sim.telegram import SimulatedTelegram
from unit.adapters.ptb.simulated_request import SimulatedRequest

App = Application[Any, Any, Any, Any, Any, Any]
Context = CallbackContext[ExtBot[Any], Any, Any, Any]
Handle = Callable[[Update, Context], Coroutine[Any, Any, None]]
Build = Callable[..., App]
POLL = 30
OTHER = "43:other"


def builder_for(telegram: SimulatedTelegram, *, concurrent: bool = True) -> Any:  # noqa: ANN401  (its type has six parameters)
    """To be attached."""
    requests = SimulatedRequest(telegram), SimulatedRequest(telegram, patience=100)
    builder = Application.builder().token(TOKEN).job_queue(None).concurrent_updates(concurrent)
    return builder.request(requests[0]).get_updates_request(requests[1])


def built(
    telegram: SimulatedTelegram,
    limiter: TidegateLimiter,
    handle: Handle,
    token: str = TOKEN,
    *,
    arbitrary_callback_data: bool = False,
    **options: Any,  # noqa: ANN401
) -> App:
    """`handle` gets every text."""
    requests = SimulatedRequest(telegram), SimulatedRequest(telegram, patience=100)
    builder = Application.builder().token(token).job_queue(None)
    builder.arbitrary_callback_data(arbitrary_callback_data)
    builder = builder.request(requests[0]).get_updates_request(requests[1])
    app: App = limiter.equip(builder, **options).build()
    app.add_handler(MessageHandler(filters.TEXT, handle))
    return app


@asynccontextmanager
async def running(app: App) -> AsyncIterator[App]:
    """As `run_polling` does it."""
    assert app.updater is not None
    async with app:
        await app.updater.start_polling(timeout=POLL)
        await app.start()
        yield app
        await app.updater.stop()
        await app.stop()


def text_of(update: Update) -> str:
    assert update.message is not None
    return update.message.text or ""


def made_up(number: int, text: str) -> Update:
    """By the user's own hand."""
    ann = User(1, "Ann", is_bot=False)
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    return Update(number, message=Message(1, noon, Chat(1, "private"), from_user=ann, text=text))
