"""How somebody hears that he is held: in a message that waits its turn, or at the button that he pressed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.errors import TidegateError
from tidegate.inbound.throttle.base import Held
from tidegate.inbound.throttle.throttle import Throttle
from tidegate.inbound.updates import About
from tidegate.reports import discreet

log = logging.getLogger("tidegate.inbound")

AT_ONCE: Final = 16  # buttons that are answered; one of a flood may spin until its client gives up
LONGEST: Final = 200  # characters at a button

# Bot, chat and text: puts the answer into the outbox, and does not wait for Telegram.
Answer = Callable[[int, int, str], Awaitable[object]]


async def tell(answer: Answer, throttle: Throttle, held: Held, about: About, bot: int) -> None:
    """Once in a window. Never raises for what becomes of it: the update is held all the same."""
    text = throttle.rules.say(held.wait) if held.answer else None
    if text is None or about.chat is None:
        return
    try:
        await answer(bot, about.chat, text)
    except TidegateError as error:
        log.warning("somebody is held and was not told: %s", discreet(str(error)))


class Buttons:
    """Stops those that spin, in tasks of its own: nobody waits for Telegram."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._answering: set[asyncio.Task[None]] = set()

    def release(self, held: Held, answer_query: Callable[[str | None], Awaitable[object]]) -> None:
        if len(self._answering) >= AT_ONCE:
            return
        text = self._throttle.rules.say(held.wait) if held.answer else None
        task = asyncio.create_task(_release(answer_query, text and text[:LONGEST]), name="tidegate: button")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


async def _release(answer_query: Callable[[str | None], Awaitable[object]], text: str | None) -> None:
    try:
        await answer_query(text)
    except Exception as error:  # noqa: BLE001  (any of the library's; the button stops by itself in the end)
        log.info("a button was not answered: %s", discreet(f"{type(error).__name__}: {error}"))
