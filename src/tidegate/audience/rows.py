"""The rows of a CSV or JSON lines file. What one line has wrong is that line's matter, not the file's."""

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

import msgspec

from tidegate.audience.source import Source
from tidegate.audience.template import Row
from tidegate.errors import BadInputError

JSON_LINES: Final = frozenset((".jsonl", ".ndjson", ".json-lines"))
CSV: Final = frozenset((".csv", ".tsv", ".tab"))
DELIMITERS: Final = (",", ";", "\t")
_WHY: Final = {
    "chat_id": "the first line must name the columns, and one of them chat_id",
    "text": "add it, or give a template",
}


class _Reader(Protocol):
    """What `csv.reader` makes."""

    line_num: int

    def __next__(self) -> list[str]: ...


class GoodLine(NamedTuple):
    number: int
    row: Row


class BadLine(NamedTuple):
    number: int
    reason: str


def rows(source: Source, needed: Sequence[str]) -> Iterator[GoodLine | BadLine]:
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
    columns = _columns(first[1], needed, f"{name}, line {first[0]}")
    for record in found:
        yield record if isinstance(record, BadLine) else _row(columns, *record)


def _delimiter(header: str) -> str:
    """That which gives a column chat_id, or else the most columns."""

    def promise(delimiter: str) -> tuple[bool, int]:
        names = [name.strip().strip('"') for name in header.split(delimiter)]
        return "chat_id" in names, len(names)

    return max(DELIMITERS, key=promise)


def _records(reader: _Reader) -> Iterator[tuple[int, list[str]] | BadLine]:
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
