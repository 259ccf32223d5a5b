"""The message of each row: from a template, from fields that all share, or from a function."""

import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from tidegate.errors import BadInputError
from tidegate.model import ChatId
from tidegate.outbox.admission import check_chat
from tidegate.row_template import Row, Template, value_of

Convert = Callable[[object], Awaitable[Mapping[str, Any]]]
Fields = dict[str, Any]

CAPTIONED: Final = frozenset(
    (
        "sendPhoto",
        "sendVideo",
        "sendAnimation",
        "sendAudio",
        "sendDocument",
        "sendVoice",
        "sendPaidMedia",
        "copyMessage",
    )
)
RESERVED_FIELDS: Final = {
    "chat_id": "it is in each row of the audience",
    "dedup_key": "a broadcast makes its own, from its name and the chat",
    "dedup_for": "use remember",
}
TERMS: Final = ("on_dead", "ahead", "remember", "total")  # of a broadcast, which are no fields of a message
_KINDS: Final = "text, a mapping of fields, or None to skip the row"


class BroadcastMessage(NamedTuple):
    """The message of one row. Its key is the same whenever the audience is read, and no other message's."""

    number: int  # of the row, or the line of a file
    row: Row
    fields: Fields  # as `send_many` takes them
    copy: int = 1  # counts the messages of one chat: several lines of a file, or put again after a cancel

    @property
    def chat_id(self) -> ChatId:
        chat: ChatId = self.fields["chat_id"]
        return chat

    @property
    def key(self) -> str:
        """The last part of the dedup key. An @name means the same chat in any case."""
        chat = str(self.chat_id).lower()
        return chat if self.copy == 1 else f"{chat}+{self.copy}"


def row_text(row: Row) -> str:
    """The letter of an audience in which each row has its text."""
    return value_of(row, "text")


def dedup_prefix(name: str) -> str:
    """Return the first part of the dedup keys of a broadcast's messages, and of no others."""
    return f"broadcast:{name}:"


class MessageWriter:
    """Writes the message of a row. Fields of a message override the `shared` fields.

    `convert` makes fields of an object in which a bot library describes a call.
    """

    def __init__(self, letter: object, shared: Mapping[str, Any], convert: Convert | None = None) -> None:
        self._place = _place_of_text(str(shared.get("method", "sendMessage")))
        for name in shared:
            _check_spelling(name)
        for name in RESERVED_FIELDS.keys() & shared.keys():
            raise BadInputError(f"{name} cannot be given for all: {RESERVED_FIELDS[name]}")
        self._template = self._templated(letter, shared) if isinstance(letter, str) else None
        if self._template is None and not isinstance(letter, Mapping) and not callable(letter):
            kind = type(letter).__name__
            raise BadInputError(f"give a template, a mapping of fields, or a function of a row: got {kind}")
        self._letter = letter
        self._convert = convert
        self.needed = ("chat_id", *(self._template.fields if self._template is not None else ()))

    async def write(self, row: Row) -> Fields | None:
        """Return the fields for the row's chat; None to skip it.

        Raises BadInputError, or whatever the user's function raises.
        """
        chat = check_chat(row.get("chat_id"))
        given = await self._given(row)
        if given is None:
            return None
        fields = dict(await self._as_fields(given))
        if _chat_in(fields) not in {None, chat}:
            raise BadInputError(f"the letter is for chat_id {fields['chat_id']}, and the row for {chat}")
        return {**fields, "chat_id": chat}

    async def _given(self, row: Row) -> object:
        if self._template is not None:
            return self._template.render(row)
        if not callable(self._letter):
            return self._letter
        given = self._letter(row)
        # Only coroutines are awaited: a bot library's call can be awaited too, and would be made at once.
        return await given if inspect.iscoroutine(given) else given

    async def _as_fields(self, given: object) -> Mapping[str, Any]:
        if isinstance(given, str):
            return {self._text_field(): given}
        if isinstance(given, Mapping):
            return given
        if self._convert is None:
            raise BadInputError(f"a letter is {_KINDS}: got {type(given).__name__}")
        return await self._convert(given)

    def _templated(self, text: str, shared: Mapping[str, Any]) -> Template:
        if self._text_field() in shared:
            raise BadInputError(f"{self._text_field()} is made from the template: give one of them")
        parse_mode = shared.get("parse_mode")
        if parse_mode not in {None, "HTML", "MarkdownV2"}:
            raise BadInputError(
                f"parse_mode {parse_mode!r} is not known to templates: choose HTML or MarkdownV2"
            )
        return Template(text, parse_mode)

    def _text_field(self) -> str:
        if self._place is None:
            raise BadInputError("this method has neither text nor caption: give a mapping, or a function")
        return self._place


def check_first(row: Row, needed: tuple[str, ...]) -> None:
    """Raise BadInputError if the first row lacks a field: no other row would have it."""
    for field in needed:
        if field not in row:
            hint = ": name it so, such as SELECT id AS chat_id" if field == "chat_id" else ""
            try:
                value_of(row, field)
            except BadInputError as error:
                raise BadInputError(f"the first row: {error}{hint}") from None


def _check_spelling(name: str) -> None:
    """Raise BadInputError for a misspelt option of the broadcast: as a field it would make every row bad."""
    if name not in TERMS and (meant := difflib.get_close_matches(name, TERMS, 1, 0.8)):
        raise BadInputError(f"{name!r} is not known: {meant[0]!r} may be meant")


def _place_of_text(method: str) -> str | None:
    return "text" if method == "sendMessage" else "caption" if method in CAPTIONED else None


def _chat_in(fields: Mapping[str, Any]) -> ChatId | None:
    return None if fields.get("chat_id") is None else check_chat(fields["chat_id"])
