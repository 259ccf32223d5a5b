"""Translates messages and button presses, as Telegram's JSON, to events of a flow. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidegate.flows.events import ButtonPress, Command, Content, FlowEvent, Text
from tidegate.flows.flow import Flow
from tidegate.flows.model import read_press
from tidegate.flows.port import SessionKey

Json = Mapping[str, Any]

_COMMAND = re.compile(r"/(?P<name>\w{1,32})(?:@(?P<bot>\w+))?(?:\s+(?P<rest>.*))?", re.DOTALL | re.ASCII)
# The contents that flows have triggers for. An animation is a document too, and a venue a location.
_CONTENTS: Final = ("animation", "audio", "contact", "document", "photo", "sticker", "video", "voice")
_MEDIA: Final = frozenset(("animation", "audio", "document", "photo", "video"))
# Contents that users send and flows have no trigger for.
_OTHER: Final = ("checklist", "dice", "game", "paid_media", "poll", "story", "venue", "video_note")
# Messages of Telegram about a chat, which nobody has written: https://core.telegram.org/bots/api#message
_SERVICE = re.compile(
    r"boost_added|(?:channel|group|supergroup)_chat_created|chat_(?:background_set|owner_\w+|shared)"
    r"|checklist_tasks_\w+|community_chat_\w+|connected_website|delete_chat_photo|direct_message_price_changed"
    r"|(?:general_)?forum_topic_\w+|gift|gift_upgrade_sent|giveaway|giveaway_\w+|invoice|left_chat_member"
    r"|managed_bot_created|message_auto_delete_timer_changed|migrate_(?:from|to)_chat_id|new_chat_\w+"
    r"|paid_message_price_changed|passport_data|pinned_message|poll_option_\w+|proximity_alert_triggered"
    r"|refunded_payment|successful_payment|suggested_post_\w+|unique_gift|users?_shared|video_chat_\w+"
    r"|web_app_data|write_access_allowed"
)


class UserEvent(NamedTuple):
    """An event of a user. `is_addressed`: it is meant for a bot, while in a group people also talk to each
    other, and a command may be another handler's.
    """

    key: SessionKey
    event: Command | Text | Content | ButtonPress
    is_private: bool
    is_addressed: bool


class FlowReader(NamedTuple):
    """Reads updates of one bot for one flow. `username` is that of the bot."""

    flow: Flow
    bot: int
    username: str = ""

    def message(self, message: Json, update: int, now: float) -> UserEvent | None:
        """None for a service message, or one to another bot. The event's time is `now`, not that of the
        message: no user is late because the bot was away.
        """
        user = message.get("from")
        if not user or user.get("is_bot"):
            return None
        event = self._message_event(message, user, _cause(now, update, user))
        if event is None:
            return None
        is_private = message["chat"]["type"] == "private"
        is_addressed = has_command(self.flow, event.name) if isinstance(event, Command) else is_private
        return UserEvent(_session_key(self.bot, message, user), event, is_private, is_addressed)

    def press(self, query: Json, update: int, now: float) -> UserEvent | None:
        """None for a button that is not this flow's, or that stands under no message of a chat.

        Telegram does not name the topic of a message that it no longer shows: a press below one finds no
        session there, and is answered like that of an old button.
        """
        data: Any = query.get("data")
        message, user = query.get("message"), query["from"]
        read = read_press(data) if isinstance(data, str) else None
        if message is None or read is None or read.flow != self.flow.name:
            return None
        is_shown = message.get("date", 0) != 0
        event = ButtonPress(
            data,
            query["id"],
            message["message_id"] if is_shown else None,
            not _MEDIA.isdisjoint(message),
            **_cause(now, update, user),
        )
        is_private = message["chat"]["type"] == "private"
        return UserEvent(_session_key(self.bot, message, user), event, is_private, is_addressed=True)

    def _message_event(
        self, message: Json, user: Json, cause: dict[str, Any]
    ) -> Command | Text | Content | None:
        if (text := message.get("text")) is not None:
            return self._text_event(text, message, user, cause)
        for kind in _CONTENTS:
            if kind in message:
                return Content(kind, _value(message, kind), **cause)
        if "location" in message and "venue" not in message:
            return Content("location", _value(message, "location"), **cause)
        if any(map(_SERVICE.fullmatch, message)):
            return None
        other = next((kind for kind in _OTHER if kind in message), "unknown")
        return Content("other", {"kind": other}, **cause)

    def _text_event(
        self, text: str, message: Json, user: Json, cause: dict[str, Any]
    ) -> Command | Text | None:
        if (command := _COMMAND.fullmatch(text)) is None:
            return Text(text, **cause)
        if command["bot"] is not None and command["bot"].lower() != self.username.lower():
            return None
        name = _known(f"/{command['name']}", self.flow)
        return Command(name, command["rest"] or "", _user_fields(user, message["chat"]["id"]), **cause)


def has_command(flow: Flow, command: str) -> bool:
    """Return whether the flow has this command, in any state."""
    return command in flow.commands or any(command in known for known in flow.transitions.values())


def query_of(event: FlowEvent) -> str | None:
    """The query of a button press, which waits for an answer."""
    return event.query if isinstance(event, ButtonPress) else None


def names_bot(text: str | None) -> bool:
    """Return whether a text is a command with the name of a bot."""
    command = _COMMAND.fullmatch(text or "")
    return command is not None and command["bot"] is not None


def _session_key(bot: int, message: Json, user: Json) -> SessionKey:
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    return SessionKey(bot, message["chat"]["id"], user["id"], thread)


def _cause(at: float, update: int, user: Json) -> dict[str, Any]:
    return {"id": f"u{update}", "at": at, "language": user.get("language_code")}


def _known(name: str, flow: Flow) -> str:
    """A phone may begin a word with a capital letter."""
    return name if has_command(flow, name) else name.lower()


def _user_fields(user: Json, chat: int) -> dict[str, Any]:
    """The first fields of a session."""
    known = {name: user.get(name) for name in ("username", "first_name", "last_name")}
    return {
        "user_id": user["id"],
        "chat_id": chat,
        **{name: one for name, one in known.items() if one is not None},
    }


def _value(message: Json, kind: str) -> object:
    """Telegram's own record, of the sizes of a photo the largest; with the caption of the message, if any."""
    value = message[kind]
    if isinstance(value, list):
        value = value[-1] if value else {}
    return {**value, "caption": message["caption"]} if message.get("caption") else value
