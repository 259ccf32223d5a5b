"""One Bot API call as it arrives: finds what it names, counts its cost, posts its message."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidegate.sim.telegram.entities import Chat, Json, SimulatedBot, StoredFile, words
from tidegate.sim.telegram.flood_control import Family, Flood, FloodControl
from tidegate.sim.telegram.members import LEFT
from tidegate.sim.telegram.parameters import LARGEST, CallParameters, TelegramApiError, bad_request, to_int
from tidegate.sim.telegram.request_log import TelegramRequestLog
from tidegate.sim.telegram.world import World

MAX_TEXT = 4096
MAX_CAPTION = 1024
# The fields that are copied when a message is copied or forwarded.
CONTENT_FIELDS = words(
    "text photo document video animation audio voice video_note sticker location venue contact dice poll "
    "caption entities caption_entities"
)
_WRITES = frozenset(
    ("text", "icon_custom_emoji_id", "style")
)  # the fields of a key that only writes its text
_ATTACHED = frozenset(
    words(
        "caption_entities entities link_preview_options message_effect_id message_thread_id protect_content "
        "reply_markup reply_parameters reply_to_message_id"
    )
)


class Upload(msgspec.Struct, frozen=True):
    name: str
    mime: str
    content: bytes


class MethodCall(CallParameters, eq=False):
    """`now` is monotonic, for counting; `date` is the time of day, for messages."""

    uploads: Mapping[str, Upload]
    bot: SimulatedBot
    world: World
    flood: FloodControl
    log: TelegramRequestLog
    now: float
    date: int
    hide_flood: bool = False
    new_files: tuple[StoredFile, ...] = ()

    def chat(self, name: str = "chat_id") -> Chat:
        """Return the chat that a parameter names, by number or @name."""
        return self.find_chat(self.params.get(name), name)

    def find_chat(self, value: object, name: str = "chat_id") -> Chat:
        if isinstance(value, str):
            value = self.world.names.get(value[1:].lower(), 0) if value.startswith("@") else to_int(value)
        if value is None or isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"{name} is empty" if name in {"chat_id", "user_id"} else "chat not found")
        chat = self.world.chat(self.bot, value) if -LARGEST < value < LARGEST else None
        if chat is None:
            raise bad_request("chat not found")
        return chat

    def group(self, otherwise: str) -> Chat:
        """Return the chat of the call. Raises if it is private or if the bot is not in it."""
        chat = self.chat()
        if chat.type == "private":
            raise bad_request(otherwise)
        self.check_reachable(chat)
        return chat

    def message(self, chat: Chat, what: str) -> Json:
        """Return the message of the call; `what` names it in the error, as in "message to edit"."""
        message = chat.messages.get(self.integer("message_id"))
        if message is None:
            raise bad_request(f"{what} not found")
        return message

    def own_message(self, chat: Chat, what: str, otherwise: str) -> Json:
        message = self.message(chat, what)
        if message.get("from", {}).get("id") != self.bot.id:
            raise bad_request(otherwise)
        return message

    def attached(self, chat: Chat) -> Json:
        """Return what goes with a message: entities, buttons, the message it replies to, display options."""
        if self.params.keys().isdisjoint(_ATTACHED):
            return {}
        keys = self.keys()
        if (
            keys
            and chat.type != "private"
            and any(not _WRITES.issuperset(key) for row in keys for key in row)
        ):
            raise bad_request("phone number can be requested in private chats only")
        parts = self.entities("entities") | self.entities("caption_entities") | self.keyboard()
        if "reply_parameters" in self.params or "reply_to_message_id" in self.params:
            parts |= self._reply(chat)
        return parts | self._display_options()

    def file(self, reference: object, kind: str) -> StoredFile:
        """Return the file of a parameter: an upload of this call, attach://…, a file_id, or an address.

        A new file is kept when the call is charged.
        """
        upload = self.uploads.get(kind)
        if isinstance(reference, str):
            if reference.startswith("attach://"):
                upload = self.uploads.get(reference.removeprefix("attach://"))
            elif reference.startswith(("http://", "https://")):
                # Telegram would fetch it. The simulator fetches nothing: the file is empty.
                upload = Upload(reference.rsplit("/", 1)[-1], "application/octet-stream", b"")
                return self._new_file(upload)
            else:
                known = self.world.files.get(reference)
                if known is None:
                    raise bad_request("wrong file identifier/HTTP URL specified")
                return known
        if upload is None:
            raise bad_request(f"there is no {kind.replace('_', ' ')} in the request")
        if not upload.content:
            raise bad_request("file must be non-empty")
        return self._new_file(upload)

    def charge(self, chat: Chat, family: Family, cost: int = 1) -> None:
        """Count a well-formed call. Raises the 429 if a limit is full.

        Reachability is checked after that: Telegram counts those calls too.
        """
        paid = "allow_paid_broadcast" in self.params and self.flag("allow_paid_broadcast")
        flood = self.flood.admit(self.now, self.bot.id, chat.id, chat.type, family, cost=cost, paid=paid)
        if flood is not None:
            self.log.refuse(flood.scope)
            raise _as_error(flood, hidden=cost > 1 and self.hide_flood)
        self.check_reachable(chat)
        for file in self.new_files:
            self.world.keep_file(file)

    def post(self, chat: Chat, content: Json) -> Json:
        """Post a message of the bot to a chat."""
        message: Json = {
            "message_id": chat.next_id,
            "from": self.bot.json,
            "chat": chat.json,
            "date": self.date,
            **content,
        }
        if "reply_markup" in self.params and (keys := self.keys()) is not None:
            chat.keys = keys
        chat.next_id += 1
        chat.keep(message)
        self.log.accept(self.bot.id, chat.id, message.get("text") or message.get("caption") or "")
        if chat.watchers:
            chat.notify(message)
        return message

    def send(self, content: Json) -> Json:
        """Post a message with this content, and what goes with it, to the chat of the call: one send."""
        chat = self.chat()
        content |= self.attached(chat)
        self.charge(chat, "send")
        return self.post(chat, content)

    def check_reachable(self, chat: Chat) -> None:
        """Raise Telegram's error if the bot cannot write to the chat."""
        if chat.migrated_to is not None:
            raise TelegramApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.migrated_to,
            )
        if chat.blocked:
            raise TelegramApiError(403, "Forbidden: bot was blocked by the user")
        if chat.kicked and self.bot.id in chat.kicked:
            raise TelegramApiError(403, f"Forbidden: bot was kicked from the {chat.type} chat")
        if chat.members and chat.members.get(self.bot.id) is LEFT:
            raise TelegramApiError(403, f"Forbidden: bot is not a member of the {chat.type} chat")
        if chat.type == "private" and self.world.users[chat.id].deactivated:
            raise TelegramApiError(403, "Forbidden: user is deactivated")

    def _new_file(self, upload: Upload) -> StoredFile:
        file = self.world.new_file(upload.name, upload.mime, upload.content)
        self.new_files += (file,)
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

    def _display_options(self) -> Json:
        looks: Json = {}
        if preview := self.nested("link_preview_options"):
            if not isinstance(preview, dict):
                raise bad_request("object expected as link preview options")
            looks["link_preview_options"] = preview
        if effect := self.string("message_effect_id"):
            looks["effect_id"] = effect
        if thread := self.integer("message_thread_id", 0):
            looks["message_thread_id"] = thread
        if self.flag("protect_content"):
            looks["has_protected_content"] = True
        return looks


def _as_error(flood: Flood, *, hidden: bool) -> TelegramApiError:
    text = f"Too Many Requests: retry after {flood.retry_after}"
    if hidden:
        return bad_request(f'failed to send message #1 with the error message "{text}"')
    return TelegramApiError(429, text, retry_after=flood.retry_after)


Methods = dict[str, Callable[[MethodCall], Any]]


def named_methods(*functions: Callable[[MethodCall], Any]) -> Methods:
    """Return functions by the names of the Bot API: `send_message` is `sendMessage`."""
    return {_camel_case(function.__name__): function for function in functions}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
