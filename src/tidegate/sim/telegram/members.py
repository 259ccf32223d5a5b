"""The status of users and bots in a chat, in Telegram's form, and the updates about changes of it."""

from typing import Final

from tidegate.sim.telegram.entities import Chat, Json, SimulatedBot, User, words

FOUNDER: Final = User(777000, "Telegram")  # owns every group
MEMBER: Final[Json] = {"status": "member"}
LEFT: Final[Json] = {"status": "left"}
KICKED: Final[Json] = {"status": "kicked", "until_date": 0}
OWNER: Final[Json] = {"status": "creator", "is_anonymous": False}
OUTSIDE: Final = frozenset(("left", "kicked"))

RIGHTS: Final = words(
    "is_anonymous can_manage_chat can_delete_messages can_manage_video_chats can_restrict_members "
    "can_promote_members can_change_info can_invite_users can_post_stories can_edit_stories "
    "can_delete_stories can_send_welcome_messages can_post_messages can_edit_messages can_pin_messages "
    "can_manage_topics can_manage_direct_messages can_manage_tags"
)
PERMISSIONS: Final = words(
    "can_send_messages can_send_audios can_send_documents can_send_photos can_send_videos "
    "can_send_video_notes can_send_voice_notes can_send_polls can_send_other_messages "
    "can_add_web_page_previews can_react_to_messages can_edit_tag can_change_info can_invite_users "
    "can_pin_messages can_manage_topics"
)


def standing(chat: Chat, user_id: int) -> Json:
    """Return the status of a user in a chat; a user who was not seen there counts as a member."""
    usual = OWNER if user_id == FOUNDER.id and chat.type != "private" else MEMBER
    return chat.members.get(user_id, usual)


def standing_of_bot(chat: Chat, bot: SimulatedBot) -> Json:
    return KICKED if bot.id in chat.kicked else chat.members.get(bot.id, MEMBER)


def is_in(chat: Chat, user_id: int) -> bool:
    return standing(chat, user_id)["status"] not in OUTSIDE


def change(bot: SimulatedBot, chat: Chat, user: User, new: Json, *, by: Json, now: float) -> None:
    """Set the status of a user in a group; the bot gets an update if it asked for chat_member."""
    old = standing(chat, user.id)
    chat.set_member(user.id, new)
    if old != new:
        bot.updates.put("chat_member", _member_updated(chat, user.json(), by, now, old, new))


def notify_bot(bot: SimulatedBot, chat: Chat, old: Json, new: Json, *, by: Json, now: float) -> None:
    """Send the bot the update that its own status has changed."""
    bot.updates.put("my_chat_member", _member_updated(chat, bot.json, by, now, old, new))


def _member_updated(chat: Chat, who: Json, by: Json, now: float, old: Json, new: Json) -> Json:  # noqa: PLR0917
    return {
        "chat": chat.json,
        "from": by,
        "date": int(now),
        "old_chat_member": old | {"user": who},
        "new_chat_member": new | {"user": who},
    }
