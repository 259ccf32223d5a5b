"""A preview of a broadcast: its first messages as they are filled in, and its bad rows. Sends nothing."""

import io
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from tidegate.broadcast.audience_file import AudienceFile, BadLine
from tidegate.broadcast.audience_upload import file_lines
from tidegate.broadcast.message import MessageWriter, row_text
from tidegate.broadcast.stored_audience import BAD_ROWS_REPORTED, chat_key
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, TicketId
from tidegate.outbox.admission import compose
from tidegate.row_template import Row, value_of

SHOWN: Final = 5  # messages


class PreviewMessage(msgspec.Struct, frozen=True):
    line: int  # of the file, from 1
    chat_id: ChatId
    text: str


class BroadcastPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The first messages, the number of rows that are good and bad, and the first of the bad ones."""

    messages: tuple[PreviewMessage, ...]
    good: int
    bad: int
    errors: tuple[BadLine, ...]


async def preview(
    content: str,
    text: str | None,
    fields: Mapping[str, Any],
    *,
    bot: BotId,
    now: float,
    is_whole: bool = True,
) -> BroadcastPreview:
    """Check the rows of a file, by the same rules as a broadcast that begins.

    `text`: a template; None: each row has its text. Of a file that is not whole, the last line may be cut
    off: it is left out. Raises BadInputError for what makes the file or the template useless as a whole.
    """
    if not is_whole:
        content = content[: content.rfind("\n") + 1] or content
    body = content.encode("utf-8", "surrogatepass")
    source = AudienceFile("the audience", io.BytesIO(body), size=len(body))
    checker = _RowPreview(text, fields, bot, now)
    async with aclosing(file_lines(source, checker.needed)) as lines:
        async for line in lines:
            if isinstance(line, BadLine):
                checker.refuse(line)
            else:
                await checker.check(line.number, line.row)
    return checker.seen()


class _RowPreview:
    def __init__(self, text: str | None, fields: Mapping[str, Any], bot: BotId, now: float) -> None:
        self._writer = MessageWriter(row_text if text is None else text, fields)
        self._fields = dict(fields)
        self._bot = bot
        self._now = now
        self.needed: Final = (*self._writer.needed, *(("text",) if text is None else ()))
        self._chats: set[str] = set()
        self._messages: list[PreviewMessage] = []
        self._bad = 0
        self._errors: list[BadLine] = []

    async def check(self, number: int, row: Row) -> None:
        try:
            value_of(row, "chat_id")
            given = await self._writer.write(row) or {}
            message = compose(TicketId(""), self._bot, {**self._fields, **given}, self._now)
        except BadInputError as error:
            self.refuse(BadLine(number, str(error)))
            return
        chat = message.chat_id
        if chat_key(chat) in self._chats:
            text = f"chat_id {chat} was in an earlier line: one message for each chat is allowed"
            self.refuse(BadLine(number, text))
            return
        self._chats.add(chat_key(chat))
        if len(self._messages) < SHOWN:
            shown = str(message.params.get("text") or message.params.get("caption") or "")
            self._messages.append(PreviewMessage(number, chat, shown))

    def refuse(self, line: BadLine) -> None:
        self._bad += 1
        if len(self._errors) < BAD_ROWS_REPORTED:
            self._errors.append(line)

    def seen(self) -> BroadcastPreview:
        return BroadcastPreview(
            messages=tuple(self._messages), good=len(self._chats), bad=self._bad, errors=tuple(self._errors)
        )
