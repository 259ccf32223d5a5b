"""Who exists: bots, people, chats, messages, files. No time, no I/O; `now` is passed in."""

import itertools
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from tidegate.errors import BadInputError
from tidegate.sim.telegram.updates import UpdateQueue

Json = dict[str, Any]
ChatType = Literal["private", "group", "supergroup", "channel"]

_TOKEN = re.compile(r"([1-9]\d{0,14}):[\w-]{1,80}", re.ASCII)
_COMMAND = re.compile(r"/[A-Za-z0-9_@]+")
TOKEN_READ = 100  # characters; no token has as many
MESSAGES_KEPT = 200  # in each chat, for editing, deleting, forwarding
QUERIES_KEPT = 1_000  # unanswered button presses of each bot
FILES_KEPT = 1_000
FILE_BYTES_KEPT = 256 * 1024 * 1024
CHATS_KEPT = 200_000  # in an open world
SUPERGROUP = -1_000_000_000_000  # ids below this are supergroups and channels


class User:
    __slots__ = ("deactivated", "first_name", "id", "username")

    def __init__(self, user_id: int, first_name: str, username: str | None = None) -> None:
        self.id = user_id
        self.first_name = first_name
        self.username = username
        self.deactivated = False

    def json(self) -> Json:
        user = {"id": self.id, "is_bot": False, "first_name": self.first_name, "language_code": "en"}
        return user | {"username": self.username} if self.username else user


class Chat:
    """One conversation. A person's private chats with two bots are two of them."""

    __slots__ = ("blocked", "id", "json", "kicked", "messages", "migrated_to", "next_id", "type", "watchers")

    def __init__(self, chat_id: int, chat_type: ChatType, json: Json) -> None:
        self.id = chat_id
        self.type = chat_type
        self.json = json
        self.blocked = False  # by the person, in a private chat
        self.kicked: set[int] = set()  # bots, from a group
        self.migrated_to: int | None = None
        self.messages: dict[int, Json] = {}
        self.next_id = 1
        self.watchers: list[Callable[[Json], None]] = []  # told of each message a bot posts or edits

    def keep(self, message: Json) -> None:
        """Store a message under its id; the oldest makes room."""
        self.messages[message["message_id"]] = message
        if len(self.messages) > MESSAGES_KEPT:
            del self.messages[next(iter(self.messages))]

    def tell(self, message: Json) -> None:
        for watcher in tuple(self.watchers):
            watcher(message)


class Webhook:
    """Where a bot wants its updates, and how that went."""

    def __init__(self, url: str, secret: str | None, max_connections: int) -> None:
        self.url = url
        self.secret = secret
        self.max_connections = max_connections
        self.last_error: tuple[int, str] | None = None


class Bot:
    def __init__(self, bot_id: int) -> None:
        self.id = bot_id
        self.username = f"sim{bot_id}_bot"
        self.json: Json = {
            "id": bot_id,
            "is_bot": True,
            "first_name": f"Bot {bot_id}",
            "username": self.username,
        }
        self.updates = UpdateQueue()
        self.webhook: Webhook | None = None
        self.queries: dict[str, None] = {}  # button presses that may be answered, oldest first


class File:
    __slots__ = ("content", "id", "mime", "name")

    def __init__(self, file_id: str, name: str, mime: str, content: bytes) -> None:
        self.id = file_id
        self.name = name
        self.mime = mime
        self.content = content


class World:
    """Everybody. In an open world whoever is written to exists; in a closed one only who was added.

    Bounded but for groups: an open world forgets the oldest private chats beyond `CHATS_KEPT`, with their
    messages, unless somebody listens there, has blocked the bot or is deactivated.
    """

    def __init__(self, *, tokens: set[str] | None = None, open_world: bool = True) -> None:
        self._tokens = tokens
        self._open = open_world
        self.bots: dict[int, Bot] = {}
        self.users: dict[int, User] = {}
        self.chats: dict[tuple[int, int], Chat] = {}  # (bot or 0, chat)
        self.names: dict[str, int] = {}  # @name of a public chat
        self.files: dict[str, File] = {}
        self._serial = itertools.count(1)
        self._forget_at = CHATS_KEPT

    @staticmethod
    def is_token(text: str) -> bool:
        return _bot_id(text[:TOKEN_READ]) is not None

    def bot(self, token: str) -> Bot | None:
        """The bot of this token; None if there is none. Two tokens with one number are one bot."""
        bot_id = _bot_id(token[:TOKEN_READ])
        if bot_id is None or (self._tokens is not None and token not in self._tokens):
            return None
        bot = self.bots.get(bot_id)
        if bot is None:
            bot = self.bots[bot_id] = Bot(bot_id)
        return bot

    def user(self, user_id: int) -> User:
        user = self.users.get(user_id)
        if user is None:
            user = self.users[user_id] = User(user_id, f"User {user_id}", f"user{user_id}")
        return user

    def chat(self, bot: Bot, chat_id: int) -> Chat | None:
        """The chat as this bot sees it; None if there is none."""
        key = (bot.id, chat_id) if chat_id > 0 else (0, chat_id)
        chat = self.chats.get(key)
        if chat is None and self._open and chat_id != 0:
            chat = self.add_private(bot, chat_id) if chat_id > 0 else self.add_group(chat_id)
        return chat

    def add_private(self, bot: Bot, user_id: int) -> Chat:
        """Let a person start a bot."""
        known = self.chats.get((bot.id, user_id))
        if known is not None:
            return known
        if self._open and len(self.chats) >= self._forget_at:
            self._forget_oldest()
        user = self.user(user_id)
        about = {"id": user_id, "type": "private", "first_name": user.first_name}
        if user.username:
            about["username"] = user.username
        chat = self.chats[bot.id, user_id] = Chat(user_id, "private", about)
        return chat

    def add_group(self, chat_id: int, chat_type: ChatType | None = None, name: str | None = None) -> Chat:
        """Create a group, supergroup or channel (told from the id if not given), public if it has a name."""
        kind = chat_type or ("supergroup" if chat_id < SUPERGROUP else "group")
        about: Json = {"id": chat_id, "type": kind, "title": f"{kind.title()} {chat_id}"}
        if name:
            about["username"] = name
            self.names[name.lower()] = chat_id
        chat = self.chats[0, chat_id] = Chat(chat_id, kind, about)
        return chat

    def migrate(self, chat_id: int, now: float) -> int:
        """Turn a group into a supergroup, as Telegram does when it grows. Returns the new id."""
        old = self.chats.get((0, chat_id)) or self.add_group(chat_id)
        if old.type != "group":
            raise BadInputError(f"chat {chat_id} is a {old.type}: only a group becomes a supergroup")
        if old.migrated_to is None:
            new = self.add_group(SUPERGROUP + chat_id, "supergroup")
            new.watchers = old.watchers
            old.migrated_to = new.id
            notices = [
                self.message(old, now, {"migrate_to_chat_id": new.id}),
                self.message(new, now, {"migrate_from_chat_id": old.id}),
            ]
            for bot in self.bots.values():
                for notice in notices:
                    bot.updates.put("message", notice)
        return old.migrated_to

    def message(self, chat: Chat, now: float, content: Json) -> Json:
        """A new message in a chat, with the next id, kept for later edits."""
        message: Json = {"message_id": chat.next_id, "date": int(now), "chat": chat.json}
        message.update(content)
        chat.next_id += 1
        chat.keep(message)
        return message

    def user_says(self, bot: Bot, user_id: int, text: str, now: float, chat_id: int | None = None) -> Json:
        """A person writes to a bot, or in a group that the bot is in."""
        chat = self.add_private(bot, user_id) if chat_id is None else self.chat(bot, chat_id)
        if chat is None:
            raise KeyError(f"chat {chat_id} does not exist")
        content: Json = {"from": self.user(user_id).json(), "text": text}
        command = _COMMAND.match(text)
        if command:
            content["entities"] = [{"type": "bot_command", "offset": 0, "length": command.end()}]
        message = self.message(chat, now, content)
        bot.updates.put("message", message)
        return message

    def user_presses(self, bot: Bot, user_id: int, message: Json, data: str) -> str:
        """A person presses a button under a message of the bot. Returns the id of the query."""
        query_id = str(next(self._serial) + 4_000_000_000)
        bot.queries[query_id] = None
        if len(bot.queries) > QUERIES_KEPT:
            del bot.queries[next(iter(bot.queries))]
        query = {"id": query_id, "from": self.user(user_id).json(), "message": message, "data": data}
        bot.updates.put("callback_query", query | {"chat_instance": str(message["chat"]["id"])})
        return query_id

    def user_blocks(self, bot: Bot, user_id: int, now: float, *, blocked: bool = True) -> None:
        """A person blocks a bot, or lets it write again; the bot is told."""
        chat = self.add_private(bot, user_id)
        if chat.blocked == blocked:
            return
        chat.blocked = blocked
        _tell_membership(bot, chat, self.user(user_id).json(), now, member=not blocked)

    def kick(self, bot: Bot, chat: Chat, now: float, *, kicked: bool = True) -> None:
        """Throw a bot out of a group or channel, or take it in again; the bot is told."""
        if (bot.id in chat.kicked) == kicked:
            return
        (chat.kicked.add if kicked else chat.kicked.discard)(bot.id)
        _tell_membership(bot, chat, _ADMIN.json(), now, member=not kicked)

    def new_file(self, name: str, mime: str, content: bytes) -> File:
        """A file with an id of its own, which nobody can name until it is kept."""
        return File(f"SIM{next(self._serial):08d}", name, mime, content)

    def keep_file(self, file: File) -> None:
        """Let the file be sent again and downloaded; the oldest make room, by number and by bytes."""
        self.files[file.id] = file
        size = sum(len(kept.content) for kept in self.files.values())
        while len(self.files) > FILES_KEPT or (size > FILE_BYTES_KEPT and len(self.files) > 1):
            size -= len(self.files.pop(next(iter(self.files))).content)

    def _forget_oldest(self) -> None:
        """A tenth at a time, so that a new chat costs the same on average however many there are."""
        idle = (
            key
            for key, chat in self.chats.items()
            if chat.type == "private"
            and not chat.watchers
            and not chat.blocked
            and not self.users[chat.id].deactivated
        )
        for key in list(itertools.islice(idle, CHATS_KEPT // 10)):
            del self.chats[key]
        known = {chat_id for _, chat_id in self.chats}
        self.users = {
            user_id: user for user_id, user in self.users.items() if user.deactivated or user_id in known
        }
        self._forget_at = max(CHATS_KEPT, len(self.chats) + CHATS_KEPT // 10)


_ADMIN = User(777000, "Telegram")


@lru_cache(maxsize=1_000)
def _bot_id(token: str) -> int | None:
    match = _TOKEN.fullmatch(token)
    return int(match[1]) if match else None


def _tell_membership(bot: Bot, chat: Chat, by: Json, now: float, *, member: bool) -> None:
    inside, outside = {"status": "member"}, {"status": "kicked", "until_date": 0}
    before, after = (outside, inside) if member else (inside, outside)
    change = {
        "chat": chat.json,
        "from": by,
        "date": int(now),
        "old_chat_member": before | {"user": bot.json},
        "new_chat_member": after | {"user": bot.json},
    }
    bot.updates.put("my_chat_member", change)
