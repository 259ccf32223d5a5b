"""What people do in the shop and what they must hear: the same for every bot library and transport.

The shop is written once for each library (`aiogram_shop`, `ptb_shop`); its words are here.
"""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim.telegram import Limits, Person, SimulatedTelegram, World
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer

TOKEN = "42:shop"
BOT_ID = 42
OWNER = 1
SECRET = "only-telegram-knows"
PICTURE = b"\x89PNG\r\n\x1a\n of a teapot \x00\xff"
PAPER = b"Tea: 2 each.\nCoffee: 3 each.\n"
PRICES = {"tea": 2, "coffee": 3}
STRANGER = 999
CROWDED, GROWING = -100, -200
MANY = Rate(10_000, 1)
GENEROUS = Limits(bot=MANY, private=MANY, group=MANY, actions=(MANY,))


class Hasty(Clock):
    """Pauses pass a hundred times faster: what is tried again is tried soon."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


def strict_telegram() -> TelegramServer:
    """Knows one token and nobody but who was added; a group hears two messages a minute."""
    world = World(tokens={TOKEN}, open_world=False)
    world.add_group(CROWDED)
    world.add_group(GROWING)
    limits = Limits(bot=MANY, private=MANY, group=Rate(2, 60))
    return TelegramServer(limits=limits, world=world, clock=Hasty())


class Visit:
    """One customer and the owner, each in a private chat with the bot. Every visit has a new customer."""

    _customers = itertools.count(1001)

    def __init__(self, telegram: SimulatedTelegram) -> None:
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        self.telegram = telegram
        self.bot = bot
        self.customer = Person(telegram, bot, next(self._customers))
        self.owner = Person(telegram, bot, OWNER)
        self.name = f"User {self.customer.id}"

    async def ask(self, text: str) -> Json:
        """Say something and hear the first answer to it."""
        self.customer.says(text)
        return await self.customer.hears()

    def content(self, sent: Json) -> bytes:
        """The bytes of a document or of a size of a photo."""
        return self.telegram.world.files[sent["file_id"]].content


Scene = Callable[[Visit], Awaitable[None]]
Opening = Callable[[TelegramServer], AbstractAsyncContextManager[None]]


async def start_is_greeted_with_buttons(visit: Visit) -> None:
    greeting = await visit.ask("/start")

    assert greeting["text"] == f"Welcome, {visit.name}!"
    assert visit.customer.buttons() == ["buy:tea", "buy:coffee"]


async def pressed_button_is_answered_and_edits_its_message(visit: Visit) -> None:
    greeting = await visit.ask("/start")

    query = visit.customer.presses("buy:coffee")
    edited = await visit.customer.hears()

    assert edited["message_id"] == greeting["message_id"]
    assert edited["text"] == "You chose coffee."
    assert "edit_date" in edited
    assert visit.customer.buttons() == []
    assert query not in visit.bot.queries


async def text_is_echoed_as_a_reply(visit: Visit) -> None:
    said = visit.customer.says("hällo 👋 <b>")
    echo = await visit.customer.hears()

    assert echo["text"] == "You said: hällo 👋 <b>"
    assert echo["reply_to_message"]["message_id"] == said["message_id"]


async def command_gets_its_arguments(visit: Visit) -> None:
    assert (await visit.ask("/price coffee 4"))["text"] == "4 coffee = 12"


async def dialogue_remembers_its_steps(visit: Visit) -> None:
    assert (await visit.ask("/order"))["text"] == "Where to?"
    assert (await visit.ask("Main Street 1"))["text"] == "For whom?"
    assert (await visit.ask("Ann"))["text"] == "For Ann, to Main Street 1."
    assert (await visit.ask("thanks"))["text"] == "You said: thanks"


async def photo_is_sent_as_bytes_then_by_its_id(visit: Visit) -> None:
    uploaded = (await visit.ask("/picture"))["photo"][-1]
    again = await visit.customer.hears()

    assert visit.content(uploaded) == PICTURE
    assert again["photo"][-1]["file_id"] == uploaded["file_id"]
    assert again["caption"] == "again"


async def document_is_sent_as_bytes_then_by_its_id(visit: Visit) -> None:
    uploaded = (await visit.ask("/paper"))["document"]
    again = await visit.customer.hears()

    assert visit.content(uploaded) == PAPER
    assert uploaded["file_name"] == "prices.txt"
    assert again["document"] == uploaded


async def album_arrives_as_one_group(visit: Visit) -> None:
    visit.customer.says("/album")
    items = [await visit.customer.hears() for _ in range(3)]

    assert [item["caption"] for item in items] == ["one", "two", "three"]
    assert len({item["media_group_id"] for item in items}) == 1
    assert [visit.content(item["photo"][-1]) for item in items] == [
        PICTURE + b"1",
        PICTURE + b"2",
        PICTURE + b"3",
    ]
    assert (await visit.customer.hears())["text"] == "3 pictures"


async def typing_is_shown_before_the_answer(visit: Visit) -> None:
    assert (await visit.ask("/think"))["text"] == "Hmm."
    shown = [
        entry.method
        for entry in visit.telegram.request_log.log
        if str(entry.chat_id) == str(visit.customer.id)
    ]
    assert shown == ["sendChatAction", "sendMessage"]


async def message_is_copied_forwarded_and_deleted(visit: Visit) -> None:
    original = await visit.ask("/repeat")
    copied, forwarded, done = [await visit.customer.hears() for _ in range(3)]

    assert original["text"] == copied["text"] == forwarded["text"] == "Fresh tea!"
    assert "forward_origin" not in copied
    assert forwarded["forward_origin"]["sender_user"]["id"] == BOT_ID
    assert done["text"] == f"deleted {original['message_id']}, copy is {copied['message_id']}"
    chat = visit.telegram.world.chat(visit.bot, visit.customer.id)
    assert chat is not None
    assert original["message_id"] not in chat.messages
    assert copied["message_id"] in chat.messages


async def chat_and_member_are_looked_up(visit: Visit) -> None:
    answer = await visit.ask("/whoami")

    assert answer["text"] == f"private: {visit.name}, @user{visit.customer.id}, member"


async def file_is_downloaded_as_it_was_uploaded(visit: Visit) -> None:
    assert "document" in await visit.ask("/download")
    assert (await visit.customer.hears())["text"] == PAPER.decode()


async def bot_is_told_when_it_is_blocked_and_unblocked(visit: Visit) -> None:
    visit.customer.blocks()
    assert (await visit.owner.hears())["text"] == f"{visit.name}: member → kicked"

    visit.customer.unblocks()
    assert (await visit.owner.hears())["text"] == f"{visit.name}: kicked → member"


SCENES: tuple[Scene, ...] = (
    start_is_greeted_with_buttons,
    pressed_button_is_answered_and_edits_its_message,
    text_is_echoed_as_a_reply,
    command_gets_its_arguments,
    dialogue_remembers_its_steps,
    photo_is_sent_as_bytes_then_by_its_id,
    document_is_sent_as_bytes_then_by_its_id,
    album_arrives_as_one_group,
    typing_is_shown_before_the_answer,
    message_is_copied_forwarded_and_deleted,
    chat_and_member_are_looked_up,
    file_is_downloaded_as_it_was_uploaded,
    bot_is_told_when_it_is_blocked_and_unblocked,
)
