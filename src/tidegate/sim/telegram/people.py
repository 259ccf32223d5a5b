"""A simulated person who uses a bot, driven by a script."""

import asyncio
from collections import deque

from tidegate.errors import BadInputError
from tidegate.sim.telegram import members
from tidegate.sim.telegram.entities import Chat, Checkout, Json, PendingQuery, SimulatedBot, keep
from tidegate.sim.telegram.methods.files import file_part
from tidegate.sim.telegram.methods.payments import begin_checkout
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.world import QUERIES_KEPT, text_content

INBOX_KEPT = 1_000
HOME = (52.52, 13.405)  # where people are who share their location by a key


class Person:
    """A person in a private chat with a bot, or in a group with it if `chat` is given.

    Messages that the bot posts or edits there are heard in order. `language`: the code of the language that
    the person's app is set to, such as `de` or `pt-br`.
    """

    def __init__(
        self,
        telegram: SimulatedTelegram,
        bot: SimulatedBot,
        user_id: int,
        *,
        chat: int | None = None,
        language: str | None = None,
    ) -> None:
        self._telegram = telegram
        self._world = telegram.world
        self._bot = bot
        self.id = user_id
        self.heard: deque[Json] = deque(maxlen=INBOX_KEPT)
        self.last: Json | None = None
        self._news = asyncio.Event()
        self._group = chat
        self._chat = self._find_chat()
        if language is not None:
            self._world.user(user_id).language_code = language
        self._chat.watchers.append(self._hear)

    def says(self, text: str) -> Json:
        """Write a text or a command to the bot."""
        return self.sends(**text_content(text))

    def sends(self, /, **content: object) -> Json:
        """Send anything, in Telegram's form: `sends(location={"latitude": 1, "longitude": 2})`."""
        return self._world.user_sends(self._bot, self.id, content, self._now, self._group)

    def sends_photo(self, content: bytes, caption: str | None = None) -> Json:
        return self.sends_file("photo", "photo.jpg", content, caption)

    def sends_file(self, kind: str, name: str, content: bytes, caption: str | None = None) -> Json:
        """Send a photo, document, video, animation, audio, voice, video_note or sticker."""
        file = self._world.new_file(name, "application/octet-stream", content)
        self._world.keep_file(file)
        return self.sends(**file_part(file, kind, {}), **({"caption": caption} if caption else {}))

    def shares_contact(self, phone_number: str) -> Json:
        """Send the person's own number, as a contact button does."""
        name = self._world.user(self.id).first_name
        return self.sends(contact={"phone_number": phone_number, "first_name": name, "user_id": self.id})

    def shares_location(self, latitude: float, longitude: float) -> Json:
        return self.sends(location={"latitude": latitude, "longitude": longitude})

    def edits(self, text: str) -> Json:
        """Change the text of the person's last message in the chat."""
        for message in reversed(self._chat.messages.values()):
            if message.get("from", {}).get("id") == self.id and "text" in message:
                kept = {key: value for key, value in message.items() if key not in {"text", "entities"}}
                new = kept | text_content(text) | {"edit_date": int(self._now)}
                self._chat.messages[new["message_id"]] = new
                self._bot.updates.put("edited_message", new)
                return new
        raise BadInputError(f"user {self.id} has written nothing in chat {self._chat.id}")

    def presses(self, data: str | None = None, *, label: str | None = None) -> str:
        """Press a button of the last message that has any: the one with this data, the one that reads like
        `label`, or the first. Raises LookupError that lists the buttons if there is none.
        """
        message, buttons = self._keyboard()
        if message is None:
            raise LookupError(f"user {self.id} sees no buttons")
        if label is not None:
            found = [button["callback_data"] for button in buttons if button["text"] == label]
            if not found:
                shown = [button["text"] for button in buttons]
                raise LookupError(f"user {self.id} sees no button that reads {label!r}, only {shown}")
            data = found[0]
        pressed = [button["callback_data"] for button in buttons]
        if data is None:
            data = pressed[0]
        if data not in pressed:
            if any(button["text"] == data for button in buttons):
                raise LookupError(f"{data!r} is what a button reads, not its data: give it as label")
            raise LookupError(f"user {self.id} sees no button {data!r}, only {pressed}")
        return self._world.user_presses(self._bot, self.id, message, data)

    def buttons(self) -> list[str]:
        """Return the data of the buttons that can be pressed now."""
        return [button["callback_data"] for button in self._keyboard()[1]]

    def labels(self) -> list[str]:
        """Return what the buttons read that can be pressed now."""
        return [button["text"] for button in self._keyboard()[1]]

    def keys(self) -> list[str]:
        """Return what the keys below the chat read."""
        return [key["text"] for row in self._chat.keys for key in row]

    def taps(self, label: str | None = None) -> Json:
        """Press a key below the chat, the first if no label is given: it writes its text, or shares the
        person's contact or location. Returns the message.
        """
        keys = [key for row in self._chat.keys for key in row if label in {None, key["text"]}]
        if not keys:
            raise LookupError(f"user {self.id} sees no key {label or ''!r}, only {self.keys()}")
        if keys[0].get("request_contact"):
            return self.shares_contact(f"+{self.id}")
        if keys[0].get("request_location"):
            return self.shares_location(*HOME)
        return self.says(keys[0]["text"])

    def votes(self, *options: int) -> Json:
        """Choose options of the latest poll, numbered from 0; no option takes the vote back."""
        messages = self._chat.messages
        message = next((found for found in reversed(messages.values()) if "poll" in found), None)
        ballot = self._world.ballots.get(message["poll"]["id"]) if message else None
        if message is None or ballot is None:
            raise BadInputError(f"there is no poll of a bot in chat {self._chat.id}")
        ballot.vote(self.id, options)
        poll = ballot.poll
        messages[message["message_id"]] = message | {"poll": poll}
        if not poll["is_anonymous"]:
            answer = {
                "poll_id": poll["id"],
                "user": self._json,
                "option_ids": list(options),
                "option_persistent_ids": [poll["options"][option]["persistent_id"] for option in options],
            }
            self._bot.updates.put("poll_answer", answer)
        self._bot.updates.put("poll", poll)
        return poll

    def pays(self, link: str | None = None) -> Checkout:
        """Pay the latest invoice, or the one behind a link. The checkout shows how the payment goes on."""
        invoices = self._bot.payments.invoices
        numbers = [(self._chat.id, number) for number in self._chat.messages]
        invoice = next((invoices[key] for key in [link, *reversed(numbers)] if key in invoices), None)
        if invoice is None or (link is not None and link not in invoices):
            raise LookupError(f"user {self.id} sees no such invoice")
        return begin_checkout(self._world, self._bot, invoice, self.id, self._chat.id)

    def joins(self) -> None:
        """Join the group or channel. The bot gets a message and, if it asked for it, a chat_member update."""
        self._check_group()
        if members.standing(self._chat, self.id)["status"] == "kicked":
            raise BadInputError(f"user {self.id} is banned from chat {self._chat.id}")
        self._chat.members.setdefault(self.id, members.LEFT)
        if not members.is_in(self._chat, self.id):
            self._change_membership(members.MEMBER, {"new_chat_members": [self._json]})

    def departs(self) -> None:
        """Leave the group or channel."""
        self._check_group()
        if members.is_in(self._chat, self.id):
            self._change_membership(members.LEFT, {"left_chat_member": self._json})

    def blocks(self) -> None:
        self._world.user_blocks(self._bot, self.id, self._now)

    def unblocks(self) -> None:
        self._world.user_blocks(self._bot, self.id, self._now, blocked=False)

    async def hears(self, timeout: float = 10) -> Json:  # noqa: ASYNC109  (in the clock's time)
        """Return the next message of the bot that was not taken yet. Raises TimeoutError if none comes."""
        async with self._telegram.clock.timeout(timeout):
            while not self.heard:
                self._news.clear()
                await self._news.wait()
        return self.heard.popleft()

    def inquires(self, text: str) -> PendingQuery:
        """Type a text after the bot's @name."""
        query_id, pending = self.opens_web_app()
        query = {"id": query_id, "from": self._json, "query": text, "offset": "", "chat_type": "sender"}
        self._bot.updates.put("inline_query", query)
        return pending

    async def looks_up(self, text: str, timeout: float = 10) -> list[Json]:  # noqa: ASYNC109  (likewise)
        """Return the bot's results for a text after its @name. Raises TimeoutError if it does not answer."""
        pending = self.inquires(text)
        answered = asyncio.Event()
        pending.on_answer = answered.set
        async with self._telegram.clock.timeout(timeout):
            await answered.wait()
        return pending.results or []

    def opens_web_app(self) -> tuple[str, PendingQuery]:
        """Open a web app of the bot; returns the id for the bot's answer, and the pending query."""
        query_id, pending = self._world.serial(), PendingQuery()
        keep(self._bot.inquiries, query_id, pending, QUERIES_KEPT)
        return query_id, pending

    def leaves(self) -> None:
        """Stop listening; the chat stays."""
        self._chat.watchers.remove(self._hear)

    @property
    def _now(self) -> float:
        return self._telegram.clock.now()

    @property
    def _json(self) -> Json:
        return self._world.user(self.id).json()

    def _find_chat(self) -> Chat:
        if self._group is None:
            return self._world.add_private(self._bot, self.id)
        chat = self._world.chat(self._bot, self._group)
        if chat is None:
            raise LookupError(f"chat {self._group} does not exist")
        return chat

    def _hear(self, message: Json) -> None:
        self.last = message
        self.heard.append(message)
        self._news.set()

    def _keyboard(self) -> tuple[Json | None, list[Json]]:
        for message in reversed(self._chat.messages.values()):
            keyboard = message.get("reply_markup", {}).get("inline_keyboard", [])
            buttons = [button for row in keyboard for button in row if "callback_data" in button]
            if buttons:
                return message, buttons
        return None, []

    def _check_group(self) -> None:
        if self._chat.type == "private":
            raise BadInputError(f"chat {self._chat.id} is private: nobody can join or leave it")

    def _change_membership(self, new: Json, notice: Json) -> None:
        user, chat = self._world.user(self.id), self._chat
        members.change(self._bot, chat, user, new, by=user.json(), now=self._now)
        if chat.type != "channel":
            message = self._world.message(chat, self._now, {"from": user.json()} | notice)
            self._bot.updates.put("message", message)
