"""What people do beside writing and pressing buttons: vote, ask inline, come, go, change their words."""

from tidegate.errors import BadInputError
from tidegate.sim.telegram import members
from tidegate.sim.telegram.entities import Chat, Json, PendingQuery, SimulatedBot, keep
from tidegate.sim.telegram.world import QUERIES_KEPT, World, written


def edit_last_message(bot: SimulatedBot, chat: Chat, user_id: int, text: str, now: float) -> Json:
    """Change the text of what a person wrote last in a chat."""
    for message in reversed(chat.messages.values()):
        if message.get("from", {}).get("id") == user_id and "text" in message:
            kept = {key: value for key, value in message.items() if key not in {"text", "entities"}}
            new = kept | written(text) | {"edit_date": int(now)}
            chat.messages[new["message_id"]] = new
            bot.updates.put("edited_message", new)
            return new
    raise BadInputError(f"user {user_id} has written nothing in chat {chat.id}")


def vote_in_poll(world: World, bot: SimulatedBot, chat: Chat, user_id: int, options: tuple[int, ...]) -> Json:
    """Answer the latest poll of a chat. Returns it as it is after that."""
    message = next((found for found in reversed(chat.messages.values()) if "poll" in found), None)
    ballot = world.ballots.get(message["poll"]["id"]) if message else None
    if message is None or ballot is None:
        raise BadInputError(f"there is no poll of a bot in chat {chat.id}")
    ballot.vote(user_id, options)
    poll = ballot.poll
    chat.messages[message["message_id"]] = message | {"poll": poll}
    if not poll["is_anonymous"]:
        chosen = {
            "option_ids": list(options),
            "option_persistent_ids": [poll["options"][option]["persistent_id"] for option in options],
        }
        answer = {"poll_id": poll["id"], "user": world.user(user_id).json()}
        bot.updates.put("poll_answer", answer | chosen)
    bot.updates.put("poll", poll)
    return poll


def send_inline_query(world: World, bot: SimulatedBot, user_id: int, text: str) -> PendingQuery:
    """Type something after the bot's @name."""
    query_id, inquiry = world.serial(), PendingQuery()
    keep(bot.inquiries, query_id, inquiry, QUERIES_KEPT)
    query = {"id": query_id, "from": world.user(user_id).json(), "query": text, "offset": ""}
    bot.updates.put("inline_query", query | {"chat_type": "sender"})
    return inquiry


def open_web_app(world: World, bot: SimulatedBot) -> tuple[str, PendingQuery]:
    """Open a web app of the bot: the id by which the bot may answer, and where its answer will be."""
    query_id, inquiry = world.serial(), PendingQuery()
    keep(bot.inquiries, query_id, inquiry, QUERIES_KEPT)
    return query_id, inquiry


def join_chat(world: World, bot: SimulatedBot, chat: Chat, user_id: int, now: float) -> None:
    """Come into a group or channel. The bot hears of it, in a message and, if it wants, as chat_member."""
    _check_group(chat)
    if members.standing(chat, user_id)["status"] == "kicked":
        raise BadInputError(f"user {user_id} is banned from chat {chat.id}")
    chat.members.setdefault(user_id, members.LEFT)
    _change_membership(world, bot, chat, user_id, now, members.MEMBER, "new_chat_members")


def leave_chat(world: World, bot: SimulatedBot, chat: Chat, user_id: int, now: float) -> None:
    """Go from a group or channel."""
    _check_group(chat)
    _change_membership(world, bot, chat, user_id, now, members.LEFT, "left_chat_member")


def _check_group(chat: Chat) -> None:
    if chat.type == "private":
        raise BadInputError(f"chat {chat.id} is private: nobody comes or goes there")


def _change_membership(  # noqa: PLR0917  (one step of two acts)
    world: World, bot: SimulatedBot, chat: Chat, user_id: int, now: float, new: Json, notice: str
) -> None:
    user = world.user(user_id)
    if members.is_in(chat, user_id) == (new is members.MEMBER):
        return
    who = user.json()
    members.change(bot, chat, user, new, by=who, now=now)
    if chat.type != "channel":
        content = {"from": who, notice: [who] if notice == "new_chat_members" else who}
        bot.updates.put("message", world.message(chat, now, content))
