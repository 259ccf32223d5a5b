"""One call as it arrives: its parameters read the way Telegram reads them, its cost counted, its error said.

Parameters come typed (JSON) or as text (forms); nested ones in a form are JSON within text.
"""

import html
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.sim.telegram.ledger import Ledger
from tidegate.sim.telegram.limits import Family, Flood, FloodControl
from tidegate.sim.telegram.world import Bot, Chat, File, Json, World

_TAG = re.compile(r"<[^>]+>")


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
    __slots__ = ("_flood", "_hide_flood", "_ledger", "bot", "now", "params", "uploads", "world")

    def __init__(  # noqa: PLR0917  (built in one place, once for each call)
        self,
        world: World,
        flood: FloodControl,
        ledger: Ledger,
        bot: Bot,
        params: Mapping[str, Any],
        uploads: Mapping[str, Upload],
        now: float,
        *,
        hide_flood: bool = False,
    ) -> None:
        self.world = world
        self._flood = flood
        self._ledger = ledger
        self.bot = bot
        self.params = params
        self.uploads = uploads
        self.now = now
        self._hide_flood = hide_flood

    def chat(self, name: str = "chat_id") -> Chat:
        """The chat a parameter names, by number or @name."""
        value = self.params.get(name)
        if isinstance(value, str):
            value = self.world.names.get(value[1:].lower(), 0) if value.startswith("@") else _to_int(value)
        if value is None or isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"{name} is empty" if name in {"chat_id", "user_id"} else "chat not found")
        chat = self.world.chat(self.bot, value)
        if chat is None:
            raise bad_request("chat not found")
        return chat

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.params.get(name, default)
        number = _to_int(value) if isinstance(value, str) else value
        if not isinstance(number, int):
            raise bad_request(f"{name} must be an integer" if value is not None else f"{name} is empty")
        return number

    def flag(self, name: str) -> bool:
        return self.params.get(name) in {True, "true", "True", "1"}

    def text(self, name: str, most: int, *, what: str) -> str:
        """A text that is within Telegram's limit after its markup is taken away."""
        value = self.params.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise bad_request(f"{name} must be a string")
        if len(value) > most:
            plain = (
                html.unescape(_TAG.sub("", value))
                if str(self.params.get("parse_mode")).lower() == "html"
                else value
            )
            if len(plain) > most:
                raise bad_request(f"{what} is too long")
        return value

    def nested(self, name: str) -> Any:  # noqa: ANN401  (any JSON)
        value = self.params.get(name)
        if isinstance(value, str):
            try:
                return msgspec.json.decode(value)
            except msgspec.DecodeError:
                raise bad_request(f"can't parse {name} JSON object") from None
        return value

    def file(self, reference: object, kind: str) -> File:
        """The file a parameter names: an upload of this call, attach://…, a file_id, or an address."""
        upload = self.uploads.get(kind)
        if isinstance(reference, str):
            if reference.startswith("attach://"):
                upload = self.uploads.get(reference.removeprefix("attach://"))
            elif reference.startswith(("http://", "https://")):
                # Telegram would fetch it. Nothing is fetched here: the file exists, and is empty.
                return self.world.store_file(reference.rsplit("/", 1)[-1], "application/octet-stream", b"")
            else:
                known = self.world.files.get(reference)
                if known is None:
                    raise bad_request("wrong file identifier/HTTP URL specified")
                return known
        if upload is None:
            raise bad_request(f"there is no {kind} in the request")
        if not upload.content:
            raise bad_request("file must be non-empty")
        return self.world.store_file(upload.name, upload.mime, upload.content)

    def charge(self, chat: Chat, family: Family, cost: int = 1) -> None:
        """Count the call, once it is known to be well formed; raise the 429 if a limit is full.

        Whether anybody may hear the bot is looked at after that: Telegram counts those calls too.
        """
        paid = "allow_paid_broadcast" in self.params and self.flag("allow_paid_broadcast")
        flood = self._flood.admit(self.now, self.bot.id, chat.id, chat.type, family, cost=cost, paid=paid)
        if flood is not None:
            self._ledger.refuse(flood.scope)
            raise self._as_error(flood, hidden=cost > 1 and self._hide_flood)
        self._check_reachable(chat)

    def post(self, chat: Chat, content: Json) -> Json:
        """Put a message of the bot into a chat."""
        message: Json = {"message_id": chat.next_id, "from": self.bot.json, "chat": chat.json}
        message["date"] = int(self.now)
        message.update(content)
        params = self.params
        if "reply_markup" in params:
            markup = self.nested("reply_markup")
            if isinstance(markup, dict) and "inline_keyboard" in markup:
                message["reply_markup"] = markup
        if "reply_parameters" in params or "reply_to_message_id" in params:
            message.update(self._reply(chat))
        chat.next_id += 1
        chat.keep(message)
        self._ledger.accept(self.bot.id, chat.id, message.get("text") or message.get("caption") or "")
        if chat.watchers:
            chat.tell(message)
        return message

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


def _to_int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
