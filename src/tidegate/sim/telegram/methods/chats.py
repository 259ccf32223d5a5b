"""Chats looked at, and what a bot does to a chat as a whole: title, links, pins, leaving it.

Rights are not checked: in a group that it is in, a bot may do what an administrator may.
"""

from typing import Final

from tidegate.sim.telegram import members
from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.residents import Json

MAX_TITLE, MAX_DESCRIPTION, MAX_LINK_NAME = 128, 255, 32
_GIFTS: Final = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)


def get_chat(call: Call) -> Json:
    chat = call.chat()
    # What Telegram sends of every chat beyond its short form.
    about = chat.json | {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _GIFTS}
    pinned = [chat.messages[number] for number in chat.pinned if number in chat.messages]
    return about | {"pinned_message": pinned[-1]} if pinned else about


def set_chat_title(call: Call) -> bool:
    chat = call.group("can't change private chat title")
    title = call.text("title", MAX_TITLE, what="title")
    if not title.strip():
        raise bad_request("title can't be empty")
    chat.json = chat.json | {"title": title}
    return True


def set_chat_description(call: Call) -> bool:
    call.group("can't change private chat description")
    call.text("description", MAX_DESCRIPTION, what="chat description")
    return True


def pin_chat_message(call: Call) -> bool:
    chat = call.chat()
    number = call.message(chat, "message to pin")["message_id"]
    call.check_reachable(chat)
    chat.pinned = (*(other for other in chat.pinned if other in chat.messages and other != number), number)
    return True


def unpin_chat_message(call: Call) -> bool:
    chat = call.chat()
    call.check_reachable(chat)
    numbers = [number for number in chat.pinned if number in chat.messages]
    number = call.integer("message_id", numbers[-1] if numbers else 0)
    if number not in chat.messages or not numbers:
        raise bad_request("message to unpin not found")
    chat.pinned = tuple(other for other in numbers if other != number)
    return True


def unpin_all_chat_messages(call: Call) -> bool:
    chat = call.chat()
    call.check_reachable(chat)
    chat.pinned = ()
    return True


def leave_chat(call: Call) -> bool:
    chat = call.group("can't leave private chats")
    old = members.standing_of_bot(chat, call.bot)
    chat.seat(call.bot.id, members.LEFT)
    members.tell_bot(call.bot, chat, old, members.LEFT, by=call.bot.json, now=call.date)
    return True


def export_chat_invite_link(call: Call) -> str:
    call.group("can't manage invite links in a private chat")
    return _new_link(call)


def create_chat_invite_link(call: Call) -> Json:
    call.group("can't manage invite links in a private chat")
    name = call.text("name", MAX_LINK_NAME, what="name")
    link: Json = {
        "invite_link": _new_link(call),
        "creator": call.bot.json,
        "creates_join_request": call.flag("creates_join_request"),
        "is_primary": False,
        "is_revoked": False,
    }
    for limit in ("expire_date", "member_limit"):
        if value := call.integer(limit, 0):
            link[limit] = value
    return link | {"name": name} if name else link


def _new_link(call: Call) -> str:
    return f"https://t.me/+sim{call.world.serial()}"


METHODS: Final[Methods] = {
    "getChat": get_chat,
    "setChatTitle": set_chat_title,
    "setChatDescription": set_chat_description,
    "pinChatMessage": pin_chat_message,
    "unpinChatMessage": unpin_chat_message,
    "unpinAllChatMessages": unpin_all_chat_messages,
    "leaveChat": leave_chat,
    "exportChatInviteLink": export_chat_invite_link,
    "createChatInviteLink": create_chat_invite_link,
}
