"""What a world holds: people, chats, bots, files. They keep themselves small; nothing here acts."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tidegate.sim.telegram.checkouts import Till
from tidegate.sim.telegram.updates import UpdateQueue

Json = dict[str, Any]
ChatType = Literal["private", "group", "supergroup", "channel"]
Key = TypeVar("Key")
Value = TypeVar("Value")

MESSAGES_KEPT = 200  # in each chat, for editing, deleting, forwarding
MEMBERS_KEPT = 10_000  # of each group


def keep(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Store under a key; the oldest makes room."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]


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

    __slots__ = (
        "blocked",
        "id",
        "json",
        "kicked",
        "members",
        "messages",
        "migrated_to",
        "next_id",
        "pinned",
        "type",
        "watchers",
    )

    def __init__(self, chat_id: int, chat_type: ChatType, json: Json) -> None:
        self.id = chat_id
        self.type = chat_type
        self.json = json
        self.blocked = False  # by the person, in a private chat
        self.kicked: set[int] = set()  # bots, from a group
        self.members: dict[int, Json] = {}  # of a group: who was seen there, and as what
        self.pinned: tuple[int, ...] = ()  # messages, the latest last
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

    def seat(self, user_id: int, standing: Json) -> None:
        """Remember what somebody is in this group."""
        keep(self.members, user_id, standing, MEMBERS_KEPT)


class Webhook:
    """Where a bot wants its updates, and how that went."""

    def __init__(self, url: str, secret: str | None, max_connections: int) -> None:
        self.url = url
        self.secret = secret
        self.max_connections = max_connections
        self.last_error: tuple[int, str] | None = None


class Profile:
    """What a bot says of itself. Keys are a language code, with a scope where there is one."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.descriptions: dict[str, str] = {}
        self.short_descriptions: dict[str, str] = {}
        self.commands: dict[tuple[object, ...], list[Json]] = {}
        self.menu_buttons: dict[int, Json] = {}  # by chat; 0 for the others


class Inquiry:
    """What somebody typed after a bot's @name, and what was offered for it."""

    def __init__(self) -> None:
        self.results: list[Json] | None = None
        self.on_answer: Callable[[], None] | None = None

    def answer(self, results: list[Json]) -> None:
        self.results = results
        if self.on_answer:
            self.on_answer()


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
        self.profile = Profile()
        self.queries: dict[str, None] = {}  # button presses that may be answered, oldest first
        self.inquiries: dict[str, Inquiry] = {}  # not answered yet, oldest first
        self.till = Till()
        self.reactions: dict[tuple[int, int], list[Json]] = {}  # of the bot, by chat and message


class File:
    __slots__ = ("content", "id", "mime", "name")

    def __init__(self, file_id: str, name: str, mime: str, content: bytes) -> None:
        self.id = file_id
        self.name = name
        self.mime = mime
        self.content = content
