"""One call as it arrives: its parameters read the way Telegram reads them, its cost counted, its error said.

Parameters come typed (JSON) or as text (forms); nested ones in a form are JSON within text. Whatever is
sent, reading it ends in a value of the promised type or in Telegram's 400.
"""

import html
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.sim.telegram.ledger import Ledger
from tidegate.sim.telegram.limits import Family, Flood, FloodControl
from tidegate.sim.telegram.world import Bot, Chat, File, Json, World

MAX_BUTTON_DATA = 64
DEEPEST = 16  # levels of a nested parameter; Telegram's own have fewer
LARGEST = 2**63
_TAG = re.compile(r"<[^>]+>")
_ATTACHED = frozenset(
    ("entities", "caption_entities", "reply_markup", "reply_parameters", "reply_to_message_id")
)


class ApiError(Exception):
    """What Telegram answers instead of a result."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def json(self) -> Json:
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        return body | {"parameters": self.parameters} if self.parameters else body


def bad_request(reason: str) -> ApiError:
    return ApiError(400, f"Bad Request: {reason}")


class Upload(msgspec.Struct, frozen=True):
    name: str
    mime: str
    content: bytes


class Call:
    """`now` is monotonic, for what is counted; `date` is the time of day, for what people read."""

    __slots__ = (
        "_flood",
        "_hide_flood",
        "_ledger",
        "_new_files",
        "_now",
        "bot",
        "date",
        "params",
        "uploads",
        "world",
    )

    def __init__(  # noqa: PLR0917  (built in one place, once for each call)
        self,
        world: World,
        flood: FloodControl,
        ledger: Ledger,
        bot: Bot,
        params: Mapping[str, Any],
        uploads: Mapping[str, Upload],
        now: float,
        date: int,
        *,
        hide_flood: bool = False,
    ) -> None:
        self.world = world
        self._flood = flood
        self._ledger = ledger
        self.bot = bot
        self.params = params
        self.uploads = uploads
        self._now = now
        self.date = date
        self._hide_flood = hide_flood
        self._new_files: tuple[File, ...] = ()

    def chat(self, name: str = "chat_id") -> Chat:
        """The chat a parameter names, by number or @name."""
        value = self.params.get(name)
        if isinstance(value, str):
            value = self.world.names.get(value[1:].lower(), 0) if value.startswith("@") else _to_int(value)
        if value is None or isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"{name} is empty" if name in {"chat_id", "user_id"} else "chat not found")
        chat = self.world.chat(self.bot, value) if -LARGEST < value < LARGEST else None
        if chat is None:
            raise bad_request("chat not found")
        return chat

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.params.get(name, default)
        number = _to_int(value) if isinstance(value, str) else value
        if not isinstance(number, int) or not -LARGEST < number < LARGEST:
            raise bad_request(f"{name} must be an integer" if value is not None else f"{name} is empty")
        return number

    def flag(self, name: str) -> bool:
        return self.params.get(name) in (True, "true", "True", "1")  # no set: a list has no hash

    def word(self, name: str) -> str:
        """A short text such as an id; empty if there is none, or something else in its place."""
        value = self.params.get(name)
        return value if isinstance(value, str) else ""

    def text(self, name: str, most: int, *, what: str) -> str:
        """A text that is within Telegram's limit after its markup is taken away."""
        value = self.params.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
        if len(value) > most:
            marked = self.word("parse_mode").lower() == "html"
            if len(html.unescape(_TAG.sub("", value)) if marked else value) > most:
                raise bad_request(f"{what} is too long")
        return value

    def nested(self, name: str) -> Any:  # noqa: ANN401  (any JSON)
        """Any JSON that can be kept and sent back: not too deep, no number that is too large."""
        value = self.params.get(name)
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError):
                value = _UNREADABLE
        if not _fits(value, DEEPEST):
            raise bad_request(f"can't parse {name} JSON object")
        return value

    def entities(self, name: str) -> Json:
        """What is to be added to a message for its entities; nothing if none are given."""
        if name not in self.params:
            return {}
        entities = self.nested(name)
        if not isinstance(entities, list) or not all(isinstance(entity, dict) for entity in entities):
            raise bad_request(f"can't parse {name} JSON object")
        return {name: entities}

    def keyboard(self) -> Json:
        """What is to be added to a message for its buttons; nothing for the keyboards that are not kept."""
        markup = self.nested("reply_markup")
        if markup is None:
            return {}
        if not isinstance(markup, dict):
            raise bad_request("object expected as reply markup")
        if "inline_keyboard" not in markup:
            return {}
        rows = markup["inline_keyboard"]
        if not isinstance(rows, list):
            raise bad_request('field "inline_keyboard" of the InlineKeyboardMarkup must be an Array')
        for row in rows:
            if not isinstance(row, list) or not all(isinstance(button, dict) for button in row):
                raise bad_request("can't parse inline keyboard button")
            for button in row:
                data = button.get("callback_data", "")
                if not isinstance(data, str) or len(data.encode()) > MAX_BUTTON_DATA:
                    raise bad_request("BUTTON_DATA_INVALID")
        return {"reply_markup": markup} if rows else {}

    def attached(self, chat: Chat) -> Json:
        """What goes with a message: its entities, its buttons, and the message that it replies to."""
        if self.params.keys().isdisjoint(_ATTACHED):
            return {}
        parts = self.entities("entities") | self.entities("caption_entities") | self.keyboard()
        if "reply_parameters" in self.params or "reply_to_message_id" in self.params:
            return parts | self._reply(chat)
        return parts

    def file(self, reference: object, kind: str) -> File:
        """The file a parameter names: an upload of this call, attach://…, a file_id, or an address.

        A new one is kept when the call is charged.
        """
        upload = self.uploads.get(kind)
        if isinstance(reference, str):
            if reference.startswith("attach://"):
                upload = self.uploads.get(reference.removeprefix("attach://"))
            elif reference.startswith(("http://", "https://")):
                # Telegram would fetch it. Nothing is fetched here: the file exists, and is empty.
                upload = Upload(reference.rsplit("/", 1)[-1], "application/octet-stream", b"")
                return self._new_file(upload)
            else:
                known = self.world.files.get(reference)
                if known is None:
                    raise bad_request("wrong file identifier/HTTP URL specified")
                return known
        if upload is None:
            raise bad_request(f"there is no {kind} in the request")
        if not upload.content:
            raise bad_request("file must be non-empty")
        return self._new_file(upload)

    def charge(self, chat: Chat, family: Family, cost: int = 1) -> None:
        """Count the call, once it is known to be well formed; raise the 429 if a limit is full.

        Whether anybody may hear the bot is looked at after that: Telegram counts those calls too.
        """
        paid = "allow_paid_broadcast" in self.params and self.flag("allow_paid_broadcast")
        flood = self._flood.admit(self._now, self.bot.id, chat.id, chat.type, family, cost=cost, paid=paid)
        if flood is not None:
            self._ledger.refuse(flood.scope)
            raise self._as_error(flood, hidden=cost > 1 and self._hide_flood)
        self._check_reachable(chat)
        for file in self._new_files:
            self.world.keep_file(file)

    def post(self, chat: Chat, content: Json) -> Json:
        """Put a message of the bot into a chat."""
        message: Json = {
            "message_id": chat.next_id,
            "from": self.bot.json,
            "chat": chat.json,
            "date": self.date,
            **content,
        }
        chat.next_id += 1
        chat.keep(message)
        self._ledger.accept(self.bot.id, chat.id, message.get("text") or message.get("caption") or "")
        if chat.watchers:
            chat.tell(message)
        return message

    def _new_file(self, upload: Upload) -> File:
        file = self.world.new_file(upload.name, upload.mime, upload.content)
        self._new_files += (file,)
        return file

    def _reply(self, chat: Chat) -> Json:
        parameters = self.nested("reply_parameters") or {"message_id": self.integer("reply_to_message_id")}
        if not isinstance(parameters, dict):
            raise bad_request("can't parse reply parameters JSON object")
        replied = parameters.get("message_id")
        original = chat.messages.get(replied) if isinstance(replied, int) else None
        if original is None:
            if parameters.get("allow_sending_without_reply") or self.flag("allow_sending_without_reply"):
                return {}
            raise bad_request("message to be replied not found")
        return {"reply_to_message": {k: v for k, v in original.items() if k != "reply_to_message"}}

    def _check_reachable(self, chat: Chat) -> None:
        if chat.migrated_to is not None:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.migrated_to,
            )
        if chat.blocked:
            raise ApiError(403, "Forbidden: bot was blocked by the user")
        if chat.kicked and self.bot.id in chat.kicked:
            raise ApiError(403, f"Forbidden: bot was kicked from the {chat.type} chat")
        if chat.type == "private" and self.world.users[chat.id].deactivated:
            raise ApiError(403, "Forbidden: user is deactivated")

    @staticmethod
    def _as_error(flood: Flood, *, hidden: bool) -> ApiError:
        text = f"Too Many Requests: retry after {flood.retry_after}"
        if hidden:
            return bad_request(f'failed to send message #1 with the error message "{text}"')
        return ApiError(429, text, retry_after=flood.retry_after)


_UNREADABLE = LARGEST  # does not fit


def _fits(value: object, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_fits(part, depth - 1) for part in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_fits(part, depth - 1) for part in value)
    return not isinstance(value, int) or -LARGEST < value < LARGEST


def _to_int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
