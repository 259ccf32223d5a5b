"""Translates messages and button presses of aiogram to events of a flow."""

import re
from collections.abc import Mapping
from typing import Any, Final

from aiogram import Bot
from aiogram.enums import ContentType
from aiogram.types import CallbackQuery, InaccessibleMessage, Message, User

from tidegate.flows.events import ButtonPress, Command, Content, Text
from tidegate.flows.flow import Flow
from tidegate.flows.model import CONTENTS, read_press
from tidegate.flows.port import SessionKey

_COMMAND = re.compile(r"/(?P<name>\w{1,32})(?:@(?P<bot>\w+))?(?:\s+(?P<rest>.*))?", re.DOTALL | re.ASCII)
# What people send, beside what the flow has words for; the rest is what Telegram says, such as that somebody
# has joined.
_OTHER: Final = frozenset(
    ("checklist", "dice", "game", "paid_media", "poll", "story", "unknown", "venue", "video_note")
)

MessageEvent = Command | Text | Content


async def message_event(
    message: Message, bot: Bot, update: int, flow: Flow, now: float
) -> MessageEvent | None:
    """None: nothing that a flow could be about, or meant for another bot. It happens `now`, whenever it was
    written: nobody is late because the bot was.
    """
    who = message.from_user
    if who is None or who.is_bot:
        return None
    cause = _cause(now, update, who)
    if message.text is not None:
        if (command := _COMMAND.fullmatch(message.text)) is None:
            return Text(message.text, **cause)
        if command["bot"] is not None and command["bot"].lower() != ((await bot.me()).username or "").lower():
            return None
        name = _known(f"/{command['name']}", flow)
        return Command(name, command["rest"] or "", _user_fields(who, message.chat.id), **cause)
    kind = ContentType(message.content_type).value
    if kind in CONTENTS:
        return Content(kind, _value(message, kind), **cause)
    return Content("other", {"kind": kind}, **cause) if kind in _OTHER else None


def press_event(query: CallbackQuery, update: int, flow: Flow, now: float) -> ButtonPress | None:
    """None: the button is not of this flow."""
    read = None if query.data is None else read_press(query.data)
    if query.data is None or read is None or read.flow != flow.name:
        return None
    return ButtonPress(query.data, query.id, **_cause(now, update, query.from_user))


def session_key_of(message: Message | InaccessibleMessage, user: User, bot: Bot) -> SessionKey:
    """Of a message that Telegram no longer shows, it does not say the topic: a press below it finds no
    session there, and is answered as one of an old button.
    """
    is_topic = isinstance(message, Message) and message.is_topic_message
    thread = message.message_thread_id if isinstance(message, Message) and is_topic else None
    return SessionKey(bot.id, message.chat.id, user.id, thread)


def _cause(at: float, update: int, who: User) -> dict[str, Any]:
    return {"id": f"u{update}", "at": at, "language": who.language_code}


def knows(flow: Flow, command: str) -> bool:
    """Whether it is meant for this flow, in whatever state."""
    return command in flow.commands or any(command in ways for ways in flow.ways.values())


def _known(name: str, flow: Flow) -> str:
    """A telephone may begin a word with a capital."""
    return name if knows(flow, name) else name.lower()


def _user_fields(who: User, chat: int) -> dict[str, Any]:
    """What a session knows from its beginning."""
    known: Mapping[str, Any] = {
        "user_id": who.id,
        "chat_id": chat,
        "username": who.username,
        "first_name": who.first_name,
        "last_name": who.last_name,
    }
    return {name: value for name, value in known.items() if value is not None}


def _value(message: Message, kind: str) -> object:
    """As JSON has it; of the sizes of a photo the largest."""
    value = getattr(message, kind, None)
    if isinstance(value, list):
        value = value[-1] if value else None
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
