"""WHAT NOT TO DO: `python -m label_bot --blocking` makes the label in the handler.

For as long as that takes, nobody else is answered. It is here to be seen: under load, and by the watchdog.
"""

from aiogram import Bot
from aiogram.filters import CommandObject
from aiogram.types import BufferedInputFile, Message

from label_bot.handlers import LabelHandlers
from label_bot.jobs import make_label


class BlockingHandlers(LabelHandlers):
    async def order(self, message: Message, command: CommandObject, bot: Bot) -> None:
        order = await self.noted_order(message, command, bot)
        if order is None:
            return
        await message.answer(self._say("taken", order.language, order=order.id))
        label = make_label(order.packed())  # blocks the event loop: a call to the carrier, then the drawing
        caption = self._say("label", order.language, order=order.id)
        await message.answer_document(BufferedInputFile(label, f"label-{order.id}.pdf"), caption=caption)
