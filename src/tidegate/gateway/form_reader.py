"""Reads multipart forms as they arrive, exactly as Telegram's server splits them.

A form is passed on byte by byte. A parser that splits it elsewhere than the server behind the gateway would
see other parameters than that server, and a file:// path could pass unseen. So this one follows
`HttpReader.cpp` of github.com/tdlib/td, and refuses what that server only tolerates.
"""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from tidegate.gateway.answers import ApiRefusal, bad_request
from tidegate.model import File

MULTIPART: Final = "multipart/form-data"
FORM: Final = "application/x-www-form-urlencoded"
LARGEST_TEXT_BODY: Final = 1_100_000  # bytes of a body without its files: Telegram takes 1 MiB
MOST_FIELDS: Final = 1_000
LARGEST_HEAD: Final = 16_384  # bytes of the headers of one part
LONGEST_BOUNDARY: Final = 200
_HEAD_END: Final = b"\r\n\r\n"
_DISPOSITION: Final = b"form-data;"
_BOUNDARY: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_PARAMETER: Final = re.compile(
    rb"""[ \t]*(?P<key>[^=;"\s]+)[ \t]*=[ \t]*"""
    rb"""(?:"(?P<quoted>(?:[^"\\]|\\.)*)"[ \t]*|(?P<token>[^";]*))(?:;|$)""",
    re.DOTALL,
)


def boundary_of(content_type: str) -> bytes:
    """Return the boundary in the header of a form. Raises ApiRefusal."""
    at = content_type.lower().find("boundary")
    name, _, rest = content_type[at:].partition("=") if at >= 0 else ("", "", "")
    value = rest.partition(";")[0]
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if name.lower().strip() != "boundary" or not _BOUNDARY.fullmatch(value) or len(value) > LONGEST_BOUNDARY:
        raise bad_request(f"the form has no boundary: write {MULTIPART}; boundary=…")
    return value.encode()


class FormReader:
    """`fields` are those without a file name, in their order. The content of files is kept only if asked."""

    def __init__(self, boundary: bytes, *, keep_files: bool = False) -> None:
        self.fields: list[tuple[str, str]] = []
        self.files: dict[str, File] = {}  # if they are kept
        self.has_files = False
        self._keep_files = keep_files
        self._delimiter = b"\r\n--" + boundary
        self._rest = bytearray(b"\r\n")  # before the first delimiter, too
        self._step = self._skip_start
        self._part = _Part()
        self._value = bytearray()
        self._bytes = 0  # of all fields
        self._parts = 0
        self._has_ended = False

    def feed(self, chunk: bytes) -> None:
        """Raises ApiRefusal for what is no form."""
        self._rest += chunk
        while self._step():
            pass

    def finish(self) -> None:
        if not self._has_ended:
            raise bad_request("the form has no end: its last line is --boundary--")

    # Each step returns whether another one may follow at once.

    def _skip_start(self) -> bool:
        at = self._rest.find(self._delimiter)
        if at < 0 and len(self._rest) < len(self._delimiter) + 4:
            return False
        if at not in {0, 2} or bytes(self._rest[:at]) not in {b"", b"\r\n"}:
            raise bad_request("the form does not begin with its boundary")
        del self._rest[: at + len(self._delimiter)]
        self._step = self._after_delimiter
        return True

    def _after_delimiter(self) -> bool:
        if len(self._rest) < 2:  # noqa: PLR2004
            return False
        if self._rest.startswith(b"--"):
            self._has_ended, self._step = True, self._skip_end
            return True
        if not self._rest.startswith(b"\r\n"):
            raise bad_request("a boundary of the form is not at the end of its line")
        self._parts += 1
        if self._parts > MOST_FIELDS:
            raise bad_request(f"the form has more than {MOST_FIELDS:,} fields")
        self._step = self._read_head
        return True

    def _read_head(self) -> bool:
        at = self._rest.find(_HEAD_END)
        if at > LARGEST_HEAD or (at < 0 and len(self._rest) > LARGEST_HEAD):
            raise bad_request("the headers of a part of the form are too large")
        if at < 0:
            return False
        self._part = _read_part(bytes(self._rest[2:at]))
        del self._rest[: at + len(_HEAD_END)]
        self._value = bytearray()
        self.has_files = self.has_files or self._part.file_name is not None
        self._step = self._read_value
        return True

    def _read_value(self) -> bool:
        at = self._rest.find(self._delimiter)
        end = at if at >= 0 else max(0, len(self._rest) - len(self._delimiter) + 1)
        is_field = self._part.file_name is None
        if is_field:
            self._bytes += end
            if self._bytes > LARGEST_TEXT_BODY:
                raise ApiRefusal(413, "too many parameters in form data")
        if is_field or self._keep_files:
            self._value += self._rest[:end]
        del self._rest[:end]
        if at < 0:
            return False
        self._end_part()
        del self._rest[: len(self._delimiter)]
        self._step = self._after_delimiter
        return True

    def _skip_end(self) -> bool:
        self._rest.clear()
        return False

    def _end_part(self) -> None:
        part, value = self._part, bytes(self._value)
        if part.file_name is not None:
            if self._keep_files:
                self.files.setdefault(part.name, File(content=value, name=part.file_name or None))
        elif part.is_form:
            self.fields += pairs_of(value.decode("utf-8", "replace"))
        else:
            self.fields.append((part.name, value.decode("utf-8", "replace")))


class _Part:
    """The headers of a part of a form."""

    __slots__ = ("file_name", "is_form", "name")

    def __init__(self) -> None:
        self.name = ""
        self.file_name: str | None = None  # None: it is no file
        self.is_form = False  # its value holds parameters as in a query


def _read_part(head: bytes) -> _Part:
    part = _Part()
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or line[:1] in b" \t" or b"\r" in line or b"\n" in line:
            raise bad_request("a part of the form has a malformed header")
        name, value = name.strip().lower(), value.strip()
        if name == b"content-disposition":
            _read_disposition(value, part)
        elif name == b"content-type":
            part.is_form = value.startswith(FORM.encode())
    if not part.name:
        raise bad_request("a part of the form has no name")
    return part


def _read_disposition(value: bytes, part: _Part) -> None:
    if not value.startswith(_DISPOSITION):
        raise bad_request("a part of the form is not form-data")
    at = len(_DISPOSITION)
    while at < len(value):
        found = _PARAMETER.match(value, at)
        if found is None or found.end() == at:
            raise bad_request("a part of the form has a malformed Content-Disposition")
        at = found.end()
        quoted, token = found["quoted"], found["token"]
        raw = re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL) if quoted is not None else token.strip()
        text = unquote_to_bytes(raw).decode("utf-8", "replace")
        if found["key"] == b"name":
            part.name = text
        elif found["key"] == b"filename":
            part.file_name = text


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Return the parameters of a query, or of a form that is written like one. Raises ApiRefusal."""
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise bad_request(f"the call has more than {MOST_FIELDS:,} parameters") from None
