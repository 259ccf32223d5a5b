"""Things for a bot to act on, made inside the simulator: messages, polls, queries that wait for an answer."""

from collections.abc import Mapping
from typing import Any

from system.bots.scenes import BOT_ID, TOKEN
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import Json

USER, GROUP, SUPERGROUP = 7, -5, -1_000_000_000_005
GUEST = 8
PICTURE = "https://example.org/picture.jpg"
INVOICE: Mapping[str, Any] = {
    "title": "Tea",
    "description": "A cup",
    "payload": "tea",
    "currency": "XTR",
    "prices": [{"label": "Tea", "amount": 42}],
}


class Stage:
    """One bot, one person in its private chat, one guest in its groups."""

    def __init__(self, telegram: SimulatedTelegram) -> None:
        self._telegram = telegram
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        assert bot.id == BOT_ID
        self.bot = bot
        self._person = Person(telegram, bot, USER)
        for group in (GROUP, SUPERGROUP):
            telegram.world.user_says(bot, GUEST, "hello", telegram.clock.now(), group)

    def text(self) -> int:
        return self._post("sendMessage", text="text")

    def photo(self) -> int:
        return self._post("sendPhoto", photo=PICTURE)

    def poll(self) -> int:
        return self._post("sendPoll", question="?", options=["a", "b"])

    def pinned(self) -> int:
        message_id = self.text()
        self._telegram.handle(self.bot, "pinChatMessage", {"chat_id": USER, "message_id": message_id})
        return message_id

    def file(self) -> str:
        file = self._telegram.world.new_file("a.txt", "text/plain", b"content")
        self._telegram.world.keep_file(file)
        return file.id

    def pressed(self) -> str:
        return self._telegram.world.user_presses(self.bot, USER, self._message(self.text()), "data")

    def inquiry(self) -> str:
        self._person.inquires("tea")
        return next(reversed(self.bot.inquiries))

    def shipping(self) -> str:
        self._post("sendInvoice", **INVOICE, is_flexible=True)
        return self._checkout()

    def checkout(self) -> str:
        self._post("sendInvoice", **INVOICE)
        return self._checkout()

    def charge(self) -> str:
        query_id = self.checkout()
        self._telegram.handle(
            self.bot, "answerPreCheckoutQuery", {"pre_checkout_query_id": query_id, "ok": True}
        )
        return next(reversed(self.bot.payments.charges))

    def _checkout(self) -> str:
        self._person.pays()
        return next(reversed(self.bot.payments.waiting))

    def _post(self, method: str, **params: object) -> int:
        answer = self._telegram.handle(self.bot, method, {"chat_id": USER} | params)
        message_id: int = answer.body["result"]["message_id"]
        return message_id

    def _message(self, message_id: int) -> Json:
        return self._telegram.world.chats[BOT_ID, USER].messages[message_id]
