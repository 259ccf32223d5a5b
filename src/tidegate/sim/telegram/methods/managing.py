"""The people of a chat: looked up, banned, restricted, promoted.

Rights are not checked: in a group that it is in, a bot may do what an administrator may.
"""

from typing import Final

from tidegate.sim.telegram import members
from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.residents import Chat, Json, User

PRIVATE_CHAT = 2  # the bot and its user
LARGEST_ID = 2**52


def get_chat_member(call: Call) -> Json:
    chat, user_id = call.chat(), call.integer("user_id")
    if user_id == call.bot.id:
        return {"until_date": 0} | members.standing_of_bot(chat, call.bot) | {"user": call.bot.json}
    user = _known(call, user_id)
    return members.standing(chat, user_id) | {"user": user.json()}


def get_chat_member_count(call: Call) -> int:
    """The owner, the bot, and whoever was seen there and has not left."""
    chat = call.chat()
    if chat.type == "private":
        return PRIVATE_CHAT
    call.check_reachable(chat)
    others = (user_id for user_id in chat.members if user_id != members.FOUNDER.id)
    return PRIVATE_CHAT + sum(members.is_in(chat, user_id) for user_id in others)


def get_chat_administrators(call: Call) -> list[Json]:
    chat = call.group("there are no administrators in the private chat")
    promoted = [
        standing | {"user": call.world.user(user_id).json()}
        for user_id, standing in chat.members.items()
        if standing["status"] == "administrator"
    ]
    return [members.OWNER | {"user": members.FOUNDER.json()}, *promoted]


def ban_chat_member(call: Call) -> bool:
    chat = call.group("can't ban members in private chats")
    banned = members.KICKED | {"until_date": call.integer("until_date", 0)}
    return _change(call, chat, _person(call), banned)


def unban_chat_member(call: Call) -> bool:
    """Whoever is in the chat is thrown out by it, unless only the banned are meant."""
    chat = call.group("chat member status can't be changed in private chats")
    user = _person(call)
    banned = members.standing(chat, user.id)["status"] == "kicked"
    return True if call.flag("only_if_banned") and not banned else _change(call, chat, user, members.LEFT)


def restrict_chat_member(call: Call) -> bool:
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


def promote_chat_member(call: Call) -> bool:
    """Without any right it takes them all away."""
    chat = call.chat()
    if chat.type not in {"supergroup", "channel"}:
        raise bad_request("method is available for supergroup and channel chats only")
    call.check_reachable(chat)
    rights = {name: call.flag(name) for name in members.RIGHTS}
    promoted = {"status": "administrator", "can_be_edited": True} | rights
    return _change(call, chat, _person(call), promoted if any(rights.values()) else members.MEMBER)


def get_user_profile_photos(call: Call) -> Json:
    _known(call, call.integer("user_id"))
    return {"total_count": 0, "photos": []}  # nobody here has a face


def _known(call: Call, user_id: int) -> User:
    user = members.FOUNDER if user_id == members.FOUNDER.id else call.world.users.get(user_id)
    if user is None:
        raise bad_request("user not found")
    return user


def _person(call: Call) -> User:
    """Whom something is to be done to: anybody but the owner and bots."""
    user_id = call.integer("user_id")
    if user_id == members.FOUNDER.id:
        raise bad_request("can't remove chat owner")
    if not 0 < user_id < LARGEST_ID or user_id == call.bot.id:
        raise bad_request("invalid user_id specified")
    return call.world.user(user_id)


def _change(call: Call, chat: Chat, user: User, new: Json) -> bool:
    members.change(call.bot, chat, user, new, by=call.bot.json, now=call.date)
    return True


METHODS: Final[Methods] = {
    "getChatMember": get_chat_member,
    "getChatMemberCount": get_chat_member_count,
    "getChatAdministrators": get_chat_administrators,
    "banChatMember": ban_chat_member,
    "unbanChatMember": unban_chat_member,
    "restrictChatMember": restrict_chat_member,
    "promoteChatMember": promote_chat_member,
    "getUserProfilePhotos": get_user_profile_photos,
}
