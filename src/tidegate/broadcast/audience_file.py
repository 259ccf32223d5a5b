"""An audience in a CSV or JSON lines file: each line becomes a message that is known to be acceptable."""

import csv
import hashlib
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import IO, Any, Final, NamedTuple, Protocol

import msgspec

from tidegate.broadcast.message import BroadcastMessage
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, TicketId
from tidegate.outbox.admission import check_chat, compose
from tidegate.outbox.message_times import absolute_times
from tidegate.row_template import Row, Template, value_of
from tidegate.templates import ParseMode

MAX_LINE: Final = 2 * 1024 * 1024  # bytes; twice the size of the largest message
PIPE_IN_MEMORY: Final = 16 * 1024 * 1024  # bytes of a pipe; the rest goes to a temporary file
BLOCK: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_NOT_UTF_8: Final = {
    b"\xff\xfe": "is written in UTF-16: save it as UTF-8",
    b"\xfe\xff": "is written in UTF-16: save it as UTF-8",
    b"PK\x03\x04": "is a spreadsheet or an archive: save it as CSV in UTF-8",
    b"\x1f\x8b": "is compressed: unpack it first",
}
Stamp = tuple[int, int]  # size and time of the last change of a file


class AudienceFile:
    """A file that is read line by line, several times: to check it and to send it."""

    def __init__(self, name: str, stream: IO[bytes], *, size: int, stamp: Stamp | None = None) -> None:
        self.name, self.size = name, size
        self.read = 0  # bytes, of the latest reading
        self._stream, self._stamp = stream, stamp

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, without a byte order mark. Raises BadInputError if the file has changed."""
        self._rewind()
        self.read = 0
        number = 0
        while line := self._stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise BadInputError(f"{self.name}, line {number}: has more than {MAX_LINE:,} bytes")
            self.read += len(line)
            yield line if number > 1 else self._text(line)

    def digest(self) -> bytes:
        """Return a digest of the content."""
        self._rewind()
        known = hashlib.blake2b(digest_size=16)
        while block := self._stream.read(BLOCK):
            known.update(block)
        return known.digest()

    def _rewind(self) -> None:
        if self._stamp is not None and self._stamp != _stamp(os.fstat(self._stream.fileno())):
            raise BadInputError(f"{self.name} was changed while it was read: run the command again")
        self._stream.seek(0)

    def _text(self, first: bytes) -> bytes:
        for start, reason in _NOT_UTF_8.items():
            if first.startswith(start):
                raise BadInputError(f"{self.name} {reason}")
        return first.removeprefix(_BOM)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


@contextmanager
def open_audience(place: str) -> Iterator[AudienceFile]:
    """Open the file at `place`, `-` for stdin. The content of a pipe is kept, to be read again."""
    name = "stdin" if place == "-" else place
    with _stream(place) as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and place != "-":
            yield AudienceFile(name, stream, size=status.st_size, stamp=_stamp(status))
            return
        with tempfile.SpooledTemporaryFile(PIPE_IN_MEMORY) as kept:
            shutil.copyfileobj(stream, kept)
            yield AudienceFile(name, kept, size=kept.tell())


def _stream(place: str) -> IO[bytes]:
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb") if place == "-" else Path(place).open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInputError(f"cannot read {place}: {reason.lower()}") from error


JSON_LINES: Final = frozenset((".jsonl", ".ndjson", ".json-lines"))
CSV: Final = frozenset((".csv", ".tsv", ".tab"))
DELIMITERS: Final = (",", ";", "\t")
_CHAT: Final = re.compile(r"-?[0-9]+|@[A-Za-z0-9_]+")
_WHY: Final = {
    "chat_id": "the first line must name the columns, and one of them chat_id",
    "text": "add it, or give a template",
    "zone": "add it, or give --zone",
}


class _CsvReader(Protocol):
    """The type of `csv.reader(…)`."""

    line_num: int

    def __next__(self) -> list[str]: ...


class GoodLine(NamedTuple):
    number: int
    row: Row


class BadLine(NamedTuple):
    number: int
    reason: str


def rows(source: AudienceFile, needed: Sequence[str]) -> Iterator[GoodLine | BadLine]:
    """Numbered by the line they begin in; empty ones are left out.

    Raises BadInputError for what makes the file useless as a whole, such as a column in `needed` that a
    CSV file does not have; rows of JSON lines have each their own fields.
    """
    lines = source.lines()
    start = list(_until_text(lines))
    if not start or not start[-1].strip():
        raise BadInputError(f"{source.name} is empty")
    everything = itertools.chain(start, lines)
    if _is_json(source.name, start[-1].lstrip()):
        return _json_rows(everything)
    return _csv_rows(source.name, everything, start[-1], needed)


def _until_text(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        if line.strip():
            return


def _is_json(name: str, first: bytes) -> bool:
    suffix = PurePath(name).suffix.lower()
    if suffix in CSV:
        return False
    if first.startswith(b"["):
        raise BadInputError(f"{name} is a JSON array: write one object in each line, without commas between")
    return suffix in JSON_LINES or first.startswith(b"{")


def _json_rows(lines: Iterable[bytes]) -> Iterator[GoodLine | BadLine]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"is no JSON: {error}")
            continue
        if isinstance(row, dict):
            yield GoodLine(number, row)
        else:
            yield BadLine(number, 'is no JSON object: write {"chat_id": …}')


def _csv_rows(
    name: str, lines: Iterable[bytes], header: bytes, needed: Sequence[str]
) -> Iterator[GoodLine | BadLine]:
    # Bytes that are no UTF-8 become lone surrogates: so only the lines that hold them are bad.
    texts = (line.decode("utf-8", "surrogateescape") for line in lines)
    delimiter = _delimiter(header.decode("utf-8", "surrogateescape"))
    found = _records(csv.reader(texts, delimiter=delimiter, strict=True, skipinitialspace=True))
    first = next(found, None)
    if first is None:
        raise BadInputError(f"{name} is empty")
    if isinstance(first, BadLine):
        raise BadInputError(f"{name}, line {first.number}: {first.reason}")
    if _is_chat(first[1]):  # a chat in each line, and no header
        columns = _columns(["chat_id"], needed, name)
        found = itertools.chain([first], found)
    else:
        columns = _columns(first[1], needed, f"{name}, line {first[0]}")
    for record in found:
        yield record if isinstance(record, BadLine) else _row(columns, *record)


def _delimiter(header: str) -> str:
    """That which gives a column chat_id, or else the most columns."""

    def promise(delimiter: str) -> tuple[bool, int]:
        names = [name.strip().strip('"') for name in header.split(delimiter)]
        return "chat_id" in names, len(names)

    return max(DELIMITERS, key=promise)


def _records(reader: _CsvReader) -> Iterator[tuple[int, list[str]] | BadLine]:
    while True:
        number = reader.line_num + 1  # a quoted value may run over several lines
        try:
            values = next(reader)
            "".join(values).encode()
        except StopIteration:
            return
        except csv.Error as error:
            yield BadLine(number, _in_words(str(error)))
        except UnicodeEncodeError:
            yield BadLine(number, "is not written in UTF-8: save the file as UTF-8")
        else:
            if any(value.strip() for value in values):
                yield number, values


def _in_words(error: str) -> str:
    if "expected after" in error:
        return 'a quote inside of quotes must be written twice: ""'
    if "new-line" in error:
        return "a carriage return stands alone: save the file with usual line ends, or quote the value"
    return f"a quote is not closed, or a value has more than {csv.field_size_limit():,} characters"


def _is_chat(values: list[str]) -> bool:
    """Return whether the first line of a file is a chat alone, and not the names of columns."""
    return len(values) == 1 and _CHAT.fullmatch(values[0].strip()) is not None


def _columns(names: list[str], needed: Sequence[str], place: str) -> list[str]:
    columns = [name.strip() for name in names]
    for column in needed:
        if column not in columns:
            known = ", ".join(filter(None, columns))
            why = _WHY.get(column, f"the template asks for {{{column}}}")
            raise BadInputError(f"{place}: there is no column {column!r} but {known}: {why}")
    doubled = next((name for name in columns if name and columns.count(name) > 1), None)
    if doubled is not None:
        raise BadInputError(f"{place}: two columns are called {doubled!r}")
    return columns


def _row(columns: list[str], number: int, values: list[str]) -> GoodLine | BadLine:
    if len(values) > len(columns):
        reason = f"has {len(values)} values for {len(columns)} columns: quote what holds a delimiter"
        return BadLine(number, reason)
    return GoodLine(number, dict(itertools.zip_longest(columns, values, fillvalue="")))


CHATS: Final = range(-(2**63), 2**63)
LONGEST_CHAT: Final = 40  # characters of a number or an @name


class Mailing:
    """The messages of a file: `template`, or the field `text` of each row, to the row's `chat_id`.

    All have the parameters `params`; times among them count from `now`. With `duplicates`, a chat may have
    several messages.
    """

    def __init__(
        self,
        source: AudienceFile,
        *,
        template: str | None = None,
        parse_mode: ParseMode | None = None,
        params: Mapping[str, Any] | None = None,
        duplicates: bool = False,
        now: float = 0.0,
    ) -> None:
        self.source = source
        self._now = now
        self.text = template
        self._template = Template(template, parse_mode) if template is not None else None
        self.params = absolute_times(params or {}, now) | ({"parse_mode": parse_mode} if parse_mode else {})
        self._duplicates = duplicates

    def messages(self) -> Iterator[BroadcastMessage | BadLine]:
        """Yield each line as a message that the outbox would accept, or with the reason why not.

        Every reading gives the same. Only the chats are kept in memory: 100 MB for a million.
        """
        wanted = self._template.fields if self._template is not None else ("text",)
        seen: Counter[ChatId] = Counter()
        for line in rows(self.source, ("chat_id", *wanted)):
            if isinstance(line, BadLine):
                yield line
                continue
            try:
                yield self._message(line.number, line.row, seen)
            except BadInputError as error:
                yield BadLine(line.number, str(error))

    def identity(self, bot: BotId) -> str:
        """Return the default name of the broadcast, derived from the file, the text and the bot.

        Parameters do not count: a second run with other parameters resumes the same broadcast.
        """
        whole = (self.source.digest().hex(), self.text, bot)
        return hashlib.blake2b(msgspec.json.encode(whole), digest_size=8).hexdigest()

    def _message(self, line: int, row: Row, seen: Counter[ChatId]) -> BroadcastMessage:
        chat_id = _chat(value_of(row, "chat_id"))
        who = chat_id.lower() if isinstance(chat_id, str) else chat_id
        if self._duplicates:
            seen[who] += 1  # bad lines too: correcting one does not change the keys of the others
        text = self._template.render(row) if self._template is not None else value_of(row, "text")
        fields = {"chat_id": chat_id, "text": text, **self.params}
        compose(TicketId(""), BotId(0), fields, self._now)
        if not self._duplicates:
            if who in seen:
                raise BadInputError(
                    f"chat_id {chat_id} was in an earlier line: one message for each chat is allowed"
                )
            seen[who] += 1
        return BroadcastMessage(line, row, fields, copy=seen[who])


def _chat(text: str) -> ChatId:
    """Read a chat. Its length is bounded first: Python refuses numbers of thousands of digits."""
    chat_id = check_chat(text) if len(text.strip()) <= LONGEST_CHAT else 0
    if isinstance(chat_id, int) and chat_id not in CHATS:
        chat_id = 0
    if chat_id == 0:
        shown = text.strip()
        shown = shown if len(shown) <= LONGEST_CHAT else f"{shown[:LONGEST_CHAT]}…"
        raise BadInputError(f"chat_id {shown!r} is not a chat: give a number other than 0, or an @name")
    return chat_id
