"""Bot API methods about chats and their members. Rights are not checked: every bot is an administrator."""

from typing import Final

from tidegate.sim.telegram import members
from tidegate.sim.telegram.call import MethodCall, named_methods
from tidegate.sim.telegram.entities import Chat, Json, User
from tidegate.sim.telegram.parameters import bad_request

MAX_TITLE, MAX_DESCRIPTION, MAX_LINK_NAME = 128, 255, 32
PRIVATE_CHAT = 2  # the bot and its user
LARGEST_ID = 2**52
_GIFTS: Final = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)


def get_chat(call: MethodCall) -> Json:
    chat = call.chat()
    # The fields that Telegram adds to the short form of every chat.
    about = chat.json | {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _GIFTS}
    pinned = [chat.messages[number] for number in chat.pinned if number in chat.messages]
    return about | {"pinned_message": pinned[-1]} if pinned else about


def set_chat_title(call: MethodCall) -> bool:
    chat = call.group("can't change private chat title")
    title = call.text("title", MAX_TITLE, what="title")
    if not title.strip():
        raise bad_request("title can't be empty")
    chat.json = chat.json | {"title": title}
    return True


def set_chat_description(call: MethodCall) -> bool:
    call.group("can't change private chat description")
    call.text("description", MAX_DESCRIPTION, what="chat description")
    return True


def pin_chat_message(call: MethodCall) -> bool:
    chat = call.chat()
    number = call.message(chat, "message to pin")["message_id"]
    call.check_reachable(chat)
    chat.pinned = (*(other for other in chat.pinned if other in chat.messages and other != number), number)
    return True


def unpin_chat_message(call: MethodCall) -> bool:
    chat = call.chat()
    call.check_reachable(chat)
    numbers = [number for number in chat.pinned if number in chat.messages]
    number = call.integer("message_id", numbers[-1] if numbers else 0)
    if number not in chat.messages or not numbers:
        raise bad_request("message to unpin not found")
    chat.pinned = tuple(other for other in numbers if other != number)
    return True


def unpin_all_chat_messages(call: MethodCall) -> bool:
    chat = call.chat()
    call.check_reachable(chat)
    chat.pinned = ()
    return True


def leave_chat(call: MethodCall) -> bool:
    chat = call.group("can't leave private chats")
    old = members.standing_of_bot(chat, call.bot)
    chat.set_member(call.bot.id, members.LEFT)
    members.notify_bot(call.bot, chat, old, members.LEFT, by=call.bot.json, now=call.date)
    return True


def export_chat_invite_link(call: MethodCall) -> str:
    call.group("can't manage invite links in a private chat")
    return _new_link(call)


def create_chat_invite_link(call: MethodCall) -> Json:
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


def _new_link(call: MethodCall) -> str:
    return f"https://t.me/+sim{call.world.serial()}"


def get_chat_member(call: MethodCall) -> Json:
    chat, user_id = call.chat(), call.integer("user_id")
    if user_id == call.bot.id:
        return {"until_date": 0} | members.standing_of_bot(chat, call.bot) | {"user": call.bot.json}
    user = _known(call, user_id)
    return members.standing(chat, user_id) | {"user": user.json()}


def get_chat_member_count(call: MethodCall) -> int:
    """Count the owner, the bot, and the users who were seen there and have not left."""
    chat = call.chat()
    if chat.type == "private":
        return PRIVATE_CHAT
    call.check_reachable(chat)
    others = (user_id for user_id in chat.members if user_id != members.FOUNDER.id)
    return PRIVATE_CHAT + sum(members.is_in(chat, user_id) for user_id in others)


def get_chat_administrators(call: MethodCall) -> list[Json]:
    chat = call.group("there are no administrators in the private chat")
    promoted = [
        standing | {"user": call.world.user(user_id).json()}
        for user_id, standing in chat.members.items()
        if standing["status"] == "administrator"
    ]
    return [members.OWNER | {"user": members.FOUNDER.json()}, *promoted]


def ban_chat_member(call: MethodCall) -> bool:
    chat = call.group("can't ban members in private chats")
    banned = members.KICKED | {"until_date": call.integer("until_date", 0)}
    return _change(call, chat, _person(call), banned)


def unban_chat_member(call: MethodCall) -> bool:
    """Unban a user; without `only_if_banned` a member is removed."""
    chat = call.group("chat member status can't be changed in private chats")
    user = _person(call)
    banned = members.standing(chat, user.id)["status"] == "kicked"
    return True if call.flag("only_if_banned") and not banned else _change(call, chat, user, members.LEFT)


def restrict_chat_member(call: MethodCall) -> bool:
    chat = call.chat()
    if chat.type != "supergroup":
        raise bad_request("method is available only for supergroups")
    call.check_reachable(chat)
    allowed = call.nested("permissions")
    if not isinstance(allowed, dict):
        raise bad_request("object expected as permissions")
    restricted: Json = {name: allowed.get(name) is True for name in members.PERMISSIONS}
    user = _person(call)
    restricted |= {"is_member": members.is_in(chat, user.id), "until_date": call.integer("until_date", 0)}
    return _change(call, chat, user, {"status": "restricted"} | restricted)


def promote_chat_member(call: MethodCall) -> bool:
    """Promote a user; without any right, the user becomes a plain member."""
    chat = call.chat()
    if chat.type not in {"supergroup", "channel"}:
        raise bad_request("method is available for supergroup and channel chats only")
    call.check_reachable(chat)
    rights = {name: call.flag(name) for name in members.RIGHTS}
    promoted = {"status": "administrator", "can_be_edited": True} | rights
    return _change(call, chat, _person(call), promoted if any(rights.values()) else members.MEMBER)


def get_user_profile_photos(call: MethodCall) -> Json:
    _known(call, call.integer("user_id"))
    return {"total_count": 0, "photos": []}  # simulated users have none


def _known(call: MethodCall, user_id: int) -> User:
    user = members.FOUNDER if user_id == members.FOUNDER.id else call.world.users.get(user_id)
    if user is None:
        raise bad_request("user not found")
    return user


def _person(call: MethodCall) -> User:
    """Return the user of the call. Raises for the owner and for the bot."""
    user_id = call.integer("user_id")
    if user_id == members.FOUNDER.id:
        raise bad_request("can't remove chat owner")
    if not 0 < user_id < LARGEST_ID or user_id == call.bot.id:
        raise bad_request("invalid user_id specified")
    return call.world.user(user_id)


def _change(call: MethodCall, chat: Chat, user: User, new: Json) -> bool:
    members.change(call.bot, chat, user, new, by=call.bot.json, now=call.date)
    return True


METHODS: Final = named_methods(
    get_chat,
    set_chat_title,
    set_chat_description,
    pin_chat_message,
    unpin_chat_message,
    unpin_all_chat_messages,
    leave_chat,
    export_chat_invite_link,
    create_chat_invite_link,
    get_chat_member,
    get_chat_member_count,
    get_chat_administrators,
    ban_chat_member,
    unban_chat_member,
    restrict_chat_member,
    promote_chat_member,
    get_user_profile_photos,
)
