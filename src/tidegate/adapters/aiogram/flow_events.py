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
# Contents that users send and flows have no trigger for. All others are service messages of Telegram.
_OTHER: Final = frozenset(
    ("checklist", "dice", "game", "paid_media", "poll", "story", "unknown", "venue", "video_note")
)

MessageEvent = Command | Text | Content


async def message_event(
    message: Message, bot: Bot, update: int, flow: Flow, now: float
) -> MessageEvent | None:
    """None for a service message, or one to another bot. The event's time is `now`, not that of the message:
    no user is late because the bot was away.
    """
    user = message.from_user
    if user is None or user.is_bot:
        return None
    cause = _cause(now, update, user)
    if message.text is not None:
        if (command := _COMMAND.fullmatch(message.text)) is None:
            return Text(message.text, **cause)
        if command["bot"] is not None and command["bot"].lower() != ((await bot.me()).username or "").lower():
            return None
        name = _known(f"/{command['name']}", flow)
        return Command(name, command["rest"] or "", _user_fields(user, message.chat.id), **cause)
    kind = ContentType(message.content_type).value
    if kind in CONTENTS:
        return Content(kind, _value(message, kind), **cause)
    return Content("other", {"kind": kind}, **cause) if kind in _OTHER else None


def press_event(query: CallbackQuery, update: int, flow: Flow, now: float) -> ButtonPress | None:
    """None for a button that is not this flow's."""
    read = None if query.data is None else read_press(query.data)
    if query.data is None or read is None or read.flow != flow.name:
        return None
    return ButtonPress(query.data, query.id, **_cause(now, update, query.from_user))


def session_key_of(message: Message | InaccessibleMessage, user: User, bot: Bot) -> SessionKey:
    """Telegram does not name the topic of an inaccessible message: a press below it finds no session, and is
    answered like that of an old button.
    """
    is_topic = isinstance(message, Message) and message.is_topic_message
    thread = message.message_thread_id if isinstance(message, Message) and is_topic else None
    return SessionKey(bot.id, message.chat.id, user.id, thread)


def _cause(at: float, update: int, user: User) -> dict[str, Any]:
    return {"id": f"u{update}", "at": at, "language": user.language_code}


def has_command(flow: Flow, command: str) -> bool:
    """Return whether the flow has this command, in any state."""
    return command in flow.commands or any(command in known for known in flow.transitions.values())


def _known(name: str, flow: Flow) -> str:
    """A phone may begin a word with a capital letter."""
    return name if has_command(flow, name) else name.lower()


def _user_fields(user: User, chat: int) -> dict[str, Any]:
    """The first fields of a session."""
    known: Mapping[str, Any] = {
        "user_id": user.id,
        "chat_id": chat,
        "username": user.username,
        "first_name": user.first_name,
        "last_name": user.last_name,
    }
    return {name: value for name, value in known.items() if value is not None}


def _value(message: Message, kind: str) -> object:
    """As plain JSON values; of the sizes of a photo the largest."""
    value = getattr(message, kind, None)
    if isinstance(value, list):
        value = value[-1] if value else None
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
