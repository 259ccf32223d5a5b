"""One text, or one for each, to everybody in a file: as letters that are known to be fit to be sent."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.audience.rows import BadLine, rows
from tidegate.audience.source import Source
from tidegate.audience.template import ParseMode, Row, Template, value_of
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, TicketId
from tidegate.outbox.admission import check_chat, compose

CHATS: Final = range(-(2**63), 2**63)
LONGEST_CHAT: Final = 40  # characters of a number or an @name


class Letter(NamedTuple):
    """What one chat gets. `key` is the same whenever the file is read, and no other letter's."""

    line: int
    key: str
    fields: Mapping[str, Any]  # as `send_many` takes them


class Mailing:
    """`template`, or the field `text` of each row, goes to the row's `chat_id`, with `params` for all."""

    def __init__(
        self,
        source: Source,
        *,
        template: str | None = None,
        parse_mode: ParseMode | None = None,
        params: Mapping[str, Any] | None = None,
        duplicates: bool = False,
    ) -> None:
        self.source = source
        self._text = template
        self._template = Template(template, parse_mode) if template is not None else None
        self.params = {**(params or {}), **({"parse_mode": parse_mode} if parse_mode else {})}
        self._duplicates = duplicates

    def letters(self) -> Iterator[Letter | BadLine]:
        """Each line of the file, as a letter that would be accepted or with what is wrong with it.

        Remembers the chats, and nothing else: a million take 100 MB. Reading it again gives the same.
        """
        wanted = self._template.fields if self._template is not None else ("text",)
        seen: Counter[ChatId] = Counter()
        for line in rows(self.source, ("chat_id", *wanted)):
            if isinstance(line, BadLine):
                yield line
                continue
            try:
                yield self._letter(line.number, line.row, seen)
            except BadInputError as error:
                yield BadLine(line.number, str(error))

    def identity(self, bot: BotId) -> str:
        """Tells this mailing from any other: the file, the text and the bot, and nothing else.

        Who thinks of a parameter between two runs goes on with the same mailing.
        """
        whole = (self.source.digest().hex(), self._text, bot)
        return hashlib.blake2b(msgspec.json.encode(whole), digest_size=8).hexdigest()

    def _letter(self, line: int, row: Row, seen: Counter[ChatId]) -> Letter:
        chat_id = _chat(value_of(row, "chat_id"))
        who = chat_id.lower() if isinstance(chat_id, str) else chat_id
        if self._duplicates:
            seen[who] += 1  # also of a bad line: the keys of those after it stay theirs once it is mended
        text = self._template.render(row) if self._template is not None else value_of(row, "text")
        fields = {"chat_id": chat_id, "text": text, **self.params}
        compose(TicketId(""), BotId(0), fields, now=0.0)
        if not self._duplicates:
            if who in seen:
                raise BadInputError(
                    f"chat_id {chat_id} was in an earlier line: one message for each chat is allowed"
                )
            seen[who] += 1
        key = str(who) if seen[who] == 1 else f"{who}+{seen[who]}"
        return Letter(line, key, fields)


def _chat(text: str) -> ChatId:
    """Bounded before it is read: a number of thousands of digits is no number to Python."""
    chat_id = check_chat(text) if len(text.strip()) <= LONGEST_CHAT else 0
    if isinstance(chat_id, int) and chat_id not in CHATS:
        chat_id = 0
    if chat_id == 0:
        shown = text.strip()
        shown = shown if len(shown) <= LONGEST_CHAT else f"{shown[:LONGEST_CHAT]}…"
        raise BadInputError(f"chat_id {shown!r} is no chat: give a number other than 0, or an @name")
    return chat_id
