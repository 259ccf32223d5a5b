"""The simulated world: bots, people, chats, messages, files. Without clock and I/O; `now` is passed in."""

import itertools
import re
from functools import lru_cache

from tidegate.errors import BadInputError
from tidegate.sim.telegram import members
from tidegate.sim.telegram.entities import (
    Ballot,
    Chat,
    ChatType,
    Json,
    SimulatedBot,
    StoredFile,
    User,
    keep,
)

_TOKEN = re.compile(r"([1-9]\d{0,14}):[\w-]{1,80}", re.ASCII)
_COMMAND = re.compile(r"/[A-Za-z0-9_@]+")
TOKEN_READ = 100  # characters; no token has as many
QUERIES_KEPT = 1_000  # unanswered button presses of each bot
BALLOTS_KEPT = 1_000
FILES_KEPT = 1_000
FILE_BYTES_KEPT = 256 * 1024 * 1024
CHATS_KEPT = 200_000  # in an open world
SUPERGROUP = -1_000_000_000_000  # ids below this are supergroups and channels


class World:
    """In an open world every chat id exists; in a closed one only the chats that were added.

    Bounded except for groups: an open world forgets the oldest private chats above `CHATS_KEPT`, with their
    messages, unless a `Person` listens there or the user has blocked the bot or is deactivated.
    """

    def __init__(self, *, tokens: set[str] | None = None, open_world: bool = True) -> None:
        self._tokens = tokens
        self._open = open_world
        self.bots: dict[int, SimulatedBot] = {}
        self.users: dict[int, User] = {}
        self.chats: dict[tuple[int, int], Chat] = {}  # (bot or 0, chat)
        self.names: dict[str, int] = {}  # @name of a public chat
        self.files: dict[str, StoredFile] = {}
        self.ballots: dict[str, Ballot] = {}  # by the poll's id
        self._serial = itertools.count(1)
        self._forget_at = CHATS_KEPT

    @staticmethod
    def is_token(text: str) -> bool:
        return _bot_id(text[:TOKEN_READ]) is not None

    def bot(self, token: str) -> SimulatedBot | None:
        """Return the bot of a token; None if there is none. Two tokens with one number are one bot."""
        bot_id = _bot_id(token[:TOKEN_READ])
        if bot_id is None or (self._tokens is not None and token not in self._tokens):
            return None
        bot = self.bots.get(bot_id)
        if bot is None:
            bot = self.bots[bot_id] = SimulatedBot(bot_id)
        return bot

    def serial(self) -> str:
        """Return a new number for a query, a poll or a payment."""
        return str(next(self._serial) + 4_000_000_000)

    def user(self, user_id: int) -> User:
        user = self.users.get(user_id)
        if user is None:
            user = self.users[user_id] = User(user_id, f"User {user_id}", f"user{user_id}")
        return user

    def chat(self, bot: SimulatedBot, chat_id: int) -> Chat | None:
        """Return the chat as this bot sees it; None if there is none."""
        key = (bot.id, chat_id) if chat_id > 0 else (0, chat_id)
        chat = self.chats.get(key)
        if chat is None and self._open and chat_id != 0:
            chat = self.add_private(bot, chat_id) if chat_id > 0 else self.add_group(chat_id)
        return chat

    def add_private(self, bot: SimulatedBot, user_id: int) -> Chat:
        """Return the private chat of a user with a bot; a new one if there is none."""
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
        """Create a group, supergroup or channel (by default by the id), public if it has a name."""
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
            new.watchers, new.members = old.watchers, old.members
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
        """Add a message to a chat under the next id, and return it."""
        message: Json = {"message_id": chat.next_id, "date": int(now), "chat": chat.json}
        message.update(content)
        chat.next_id += 1
        chat.keep(message)
        return message

    def user_says(
        self, bot: SimulatedBot, user_id: int, text: str, now: float, chat_id: int | None = None
    ) -> Json:
        """A user writes to a bot, or in a group that the bot is in."""
        return self.user_sends(bot, user_id, text_content(text), now, chat_id)

    def user_sends(
        self, bot: SimulatedBot, user_id: int, content: Json, now: float, chat_id: int | None = None
    ) -> Json:
        """A user sends anything, in Telegram's form: `{"location": {…}}`."""
        chat = self.add_private(bot, user_id) if chat_id is None else self.chat(bot, chat_id)
        if chat is None:
            raise KeyError(f"chat {chat_id} does not exist")
        if chat_id is not None:
            self._require_member(chat, user_id)
        message = self.message(chat, now, {"from": self.user(user_id).json(), **content})
        bot.updates.put("message", message)
        return message

    def user_presses(self, bot: SimulatedBot, user_id: int, message: Json, data: str) -> str:
        """A user presses a button under a message of the bot. Returns the id of the query."""
        query_id = self.serial()
        keep(bot.queries, query_id, None, QUERIES_KEPT)
        query = {"id": query_id, "from": self.user(user_id).json(), "message": message, "data": data}
        bot.updates.put("callback_query", query | {"chat_instance": str(message["chat"]["id"])})
        return query_id

    def user_blocks(self, bot: SimulatedBot, user_id: int, now: float, *, blocked: bool = True) -> None:
        """A user blocks or unblocks a bot; the bot gets an update."""
        chat = self.add_private(bot, user_id)
        if chat.blocked == blocked:
            return
        chat.blocked = blocked
        old, new = (members.MEMBER, members.KICKED) if blocked else (members.KICKED, members.MEMBER)
        members.notify_bot(bot, chat, old, new, by=self.user(user_id).json(), now=now)

    def kick(self, bot: SimulatedBot, chat: Chat, now: float, *, kicked: bool = True) -> None:
        """Remove a bot from a group or channel, or add it again; the bot gets an update."""
        old, new = members.standing_of_bot(chat, bot), members.KICKED if kicked else members.MEMBER
        if old == new:
            return
        (chat.kicked.add if kicked else chat.kicked.discard)(bot.id)
        chat.members.pop(bot.id, None)
        members.notify_bot(bot, chat, old, new, by=members.FOUNDER.json(), now=now)

    def new_file(self, name: str, mime: str, content: bytes) -> StoredFile:
        """Create a file with an id of its own; it cannot be used before `keep_file`."""
        return StoredFile(f"SIM{next(self._serial):08d}", name, mime, content)

    def keep_file(self, file: StoredFile) -> None:
        """Make a file available for sending and download; the oldest are dropped, by number and by bytes."""
        self.files[file.id] = file
        size = sum(len(kept.content) for kept in self.files.values())
        while len(self.files) > FILES_KEPT or (size > FILE_BYTES_KEPT and len(self.files) > 1):
            size -= len(self.files.pop(next(iter(self.files))).content)

    def keep_ballot(self, ballot: Ballot) -> None:
        """Open a poll for votes; the oldest polls are dropped."""
        keep(self.ballots, ballot.poll["id"], ballot, BALLOTS_KEPT)

    def _require_member(self, chat: Chat, user_id: int) -> None:
        if not members.is_in(chat, user_id):
            raise BadInputError(f"user {user_id} is not in chat {chat.id}: POST /sim/join")
        if user_id not in chat.members:
            chat.set_member(user_id, members.MEMBER)

    def _forget_oldest(self) -> None:
        """Drop a tenth at a time, so that the average cost of a new chat does not grow with their number."""
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


def text_content(text: str) -> Json:
    """Return the content of a text message; a command at its start becomes an entity."""
    command = _COMMAND.match(text)
    marks = {"entities": [{"type": "bot_command", "offset": 0, "length": command.end()}]} if command else {}
    return {"text": text} | marks


@lru_cache(maxsize=1_000)
def _bot_id(token: str) -> int | None:
    match = _TOKEN.fullmatch(token)
    return int(match[1]) if match else None
