"""Somebody who uses a bot: a person whom a script moves."""

import asyncio
from collections import deque

from tidegate.sim.telegram import acts, paying
from tidegate.sim.telegram.entities import Checkout
from tidegate.sim.telegram.methods.files import file_part
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.world import Chat, Json, SimulatedBot

INBOX_KEPT = 1_000


class Person:
    """Somebody in a private chat with a bot, or in a group with it if one is named.

    What the bot posts or edits there is heard in order.
    """

    def __init__(
        self, telegram: SimulatedTelegram, bot: SimulatedBot, user_id: int, *, chat: int | None = None
    ) -> None:
        self._telegram = telegram
        self._bot = bot
        self.id = user_id
        self.heard: deque[Json] = deque(maxlen=INBOX_KEPT)
        self.last: Json | None = None
        self._news = asyncio.Event()
        self._group = chat
        self._chat = self._find_chat()
        self._chat.watchers.append(self._hear)

    def says(self, text: str) -> Json:
        """Write a text or a command to the bot."""
        return self._telegram.world.user_says(self._bot, self.id, text, self._now, self._group)

    def sends(self, /, **content: object) -> Json:
        """Send anything, in Telegram's form: `sends(location={"latitude": 1, "longitude": 2})`."""
        return self._telegram.world.user_sends(self._bot, self.id, content, self._now, self._group)

    def sends_photo(self, content: bytes, caption: str | None = None) -> Json:
        return self.sends_file("photo", "photo.jpg", content, caption)

    def sends_file(self, kind: str, name: str, content: bytes, caption: str | None = None) -> Json:
        """Send a photo, document, video, animation, audio, voice, video_note or sticker."""
        world = self._telegram.world
        file = world.new_file(name, "application/octet-stream", content)
        world.keep_file(file)
        return self.sends(**file_part(file, kind, {}), **({"caption": caption} if caption else {}))

    def shares_contact(self, phone_number: str) -> Json:
        """Send one's own number, as a button for it does."""
        who = self._telegram.world.user(self.id)
        return self.sends(
            contact={"phone_number": phone_number, "first_name": who.first_name, "user_id": self.id}
        )

    def shares_location(self, latitude: float, longitude: float) -> Json:
        return self.sends(location={"latitude": latitude, "longitude": longitude})

    def edits(self, text: str) -> Json:
        """Change what was written last."""
        return acts.edit_last_message(self._bot, self._chat, self.id, text, self._now)

    def presses(self, data: str | None = None) -> str:
        """Press a button of the last message that has any: the one with this data, or the first."""
        message, buttons = self._keyboard()
        if message is None:
            raise LookupError(f"user {self.id} sees no buttons")
        if data is None:
            data = buttons[0]
        if data not in buttons:
            raise LookupError(f"user {self.id} sees no button {data!r}, only {buttons}")
        return self._telegram.world.user_presses(self._bot, self.id, message, data)

    def buttons(self) -> list[str]:
        """The data of the buttons that can be pressed now."""
        return self._keyboard()[1]

    def votes(self, *options: int) -> Json:
        """Choose options of the latest poll, numbered from 0; none takes the vote back."""
        return acts.vote_in_poll(self._telegram.world, self._bot, self._chat, self.id, options)

    def pays(self, link: str | None = None) -> Checkout:
        """Pay the latest invoice, or the one behind a link. The checkout tells how it goes on."""
        invoices = self._bot.till.invoices
        numbers = [(self._chat.id, number) for number in self._chat.messages]
        invoice = next((invoices[key] for key in [link, *reversed(numbers)] if key in invoices), None)
        if invoice is None or (link is not None and link not in invoices):
            raise LookupError(f"user {self.id} sees no such invoice")
        return paying.begin_checkout(self._telegram.world, self._bot, invoice, self.id, self._chat.id)

    def joins(self) -> None:
        """Come into the group."""
        acts.join_chat(self._telegram.world, self._bot, self._chat, self.id, self._now)

    def departs(self) -> None:
        """Go from the group."""
        acts.leave_chat(self._telegram.world, self._bot, self._chat, self.id, self._now)

    def blocks(self) -> None:
        self._telegram.world.user_blocks(self._bot, self.id, self._now)

    def unblocks(self) -> None:
        self._telegram.world.user_blocks(self._bot, self.id, self._now, blocked=False)

    async def hears(self, timeout: float = 10) -> Json:  # noqa: ASYNC109  (in the clock's time)
        """The next message of the bot that was not taken yet. Raises TimeoutError if none comes."""
        async with self._telegram.clock.timeout(timeout):
            while not self.heard:
                self._news.clear()
                await self._news.wait()
        return self.heard.popleft()

    async def looks_up(self, text: str, timeout: float = 10) -> list[Json]:  # noqa: ASYNC109  (likewise)
        """What the bot offers for a text after its @name. Raises TimeoutError if it does not answer."""
        inquiry = acts.send_inline_query(self._telegram.world, self._bot, self.id, text)
        answered = asyncio.Event()
        inquiry.on_answer = answered.set
        async with self._telegram.clock.timeout(timeout):
            await answered.wait()
        return inquiry.results or []

    def leaves(self) -> None:
        """Stop listening; the chat stays."""
        self._chat.watchers.remove(self._hear)

    @property
    def _now(self) -> float:
        return self._telegram.clock.now()

    def _find_chat(self) -> Chat:
        world = self._telegram.world
        if self._group is None:
            return world.add_private(self._bot, self.id)
        chat = world.chat(self._bot, self._group)
        if chat is None:
            raise LookupError(f"chat {self._group} does not exist")
        return chat

    def _hear(self, message: Json) -> None:
        self.last = message
        self.heard.append(message)
        self._news.set()

    def _keyboard(self) -> tuple[Json | None, list[str]]:
        for message in reversed(self._chat.messages.values()):
            keyboard = message.get("reply_markup", {}).get("inline_keyboard", [])
            buttons = [
                button["callback_data"] for row in keyboard for button in row if "callback_data" in button
            ]
            if buttons:
                return message, buttons
        return None, []
