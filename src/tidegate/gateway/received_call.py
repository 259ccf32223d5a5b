"""A call as a client has sent it: the parameters that Tidegate reads, and the body as it came.

The body is passed on byte by byte. A form with files waits in a temporary file (mode 0600), so that it costs
no memory and can be sent again; `async with` the call, which deletes it.
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import IO, Any, Final, Self

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.bot_api import RawCall
from tidegate.delivery.request_body import DiskFile, Part
from tidegate.errors import BadInputError
from tidegate.gateway.answers import CANNOT_PARSE, ApiRefusal, bad_request, encode
from tidegate.gateway.form_reader import (
    FORM,
    LARGEST_TEXT_BODY,
    MULTIPART,
    FormReader,
    boundary_of,
    pairs_of,
)
from tidegate.gateway.local_files import check_json, check_pairs
from tidegate.inbound.webhook_request import (
    BODY_TIMEOUT,
    BodyReader,
    WebhookRequest,
    WebhookResponse,
    declared_length,
)
from tidegate.model import ChatId, File
from tidegate.outbox.admission import check_chat
from tidegate.outbox.bot_api_methods import PARAMETERS

JSON: Final = "application/json"
WRITE_BYTES: Final = 262_144  # gathered before they are written to the disk
LEAST_RATE: Final = 20_000  # bytes a second that a form has to arrive with, on average
MOST_SPOOLED: Final = 2_000_000_000  # bytes of all forms that are under way, unless it is only one
_METHOD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_CANONICAL: Final = {name.lower(): name for name in PARAMETERS}  # Telegram ignores the case of methods
_NESTED: Final = ("media", "message_ids")  # JSON in a form, which limits read
_PAID: Final = "allow_paid_broadcast"
_CHAT: Final = b'"chat_id"'
_ESCAPED: Final = b"\\u00"  # how a letter of a name would begin that is escaped
TEST_ENVIRONMENT: Final = (
    "Telegram's test environment is another server: start a gateway for it, with --telegram"
    " https://api.telegram.org/bot{token}/test/{method}"
)
_TRUE: Final = frozenset(("true", "yes", "1"))  # as Telegram reads them, in any case
_PLAIN_ENCODINGS: Final = frozenset((b"", b"identity", b"none"))
_decode = msgspec.json.Decoder().decode


class ReceivedCall:
    """One call. `params` has values as JSON, or as texts where a form or the query gave them.

    Of two parameters with one name the first counts, as for Telegram's server; the query comes first.
    """

    def __init__(self, method: str, query: str) -> None:
        if method.startswith("test/"):
            raise ApiRefusal(HTTPStatus.NOT_FOUND, TEST_ENVIRONMENT)
        if not _METHOD.fullmatch(method):
            raise ApiRefusal(HTTPStatus.NOT_FOUND, "")
        self.method = _CANONICAL.get(method.lower(), method)
        self.params: Mapping[str, Any] = {}
        self.has_files = False
        self._query = query
        self._content_type = JSON
        self._body: Part = b""
        self._boundary = b""  # of a form
        self._spool: _Spool | None = None
        if query:
            self._take_pairs(pairs_of(query))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._spool is not None:
            await self._spool.close()

    @property
    def raw(self) -> RawCall:
        return RawCall(self.method, self._content_type, (self._body,), self._query)

    @property
    def chat_id(self) -> ChatId | None:
        """The chat as limits know it; None if there is none, or one that Telegram will reject."""
        chat_id = self.params.get("chat_id")
        try:
            return None if chat_id is None else check_chat(chat_id)
        except BadInputError:
            return None

    def paced_params(self) -> Mapping[str, Any]:
        """Return the parameters on which limits depend, as plain values."""
        params = self.params
        texts = {name: plain(params[name]) for name in _NESTED if isinstance(params.get(name), str)}
        if isinstance(paid := params.get(_PAID), str):
            texts[_PAID] = is_true(paid)
        return {**params, **texts} if texts else params

    @classmethod
    def of(cls, method: str, params: Mapping[str, Any]) -> "ReceivedCall":
        """Return a call that came otherwise than as a request. Raises ApiRefusal."""
        received, body = cls(method, ""), encode(params)
        check_json(body)
        received.params, received._body = params, body
        return received

    async def read(self, request: WebhookRequest, bodies: "CallBodies") -> None:
        """Read the body. Raises ApiRefusal for what cannot be read, or may not be passed on."""
        if request.headers.get(b"content-encoding", b"").strip().lower() not in _PLAIN_ENCODINGS:
            text = "a compressed body cannot be read: send it without Content-Encoding"
            raise ApiRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        given = request.headers.get(b"content-type", b"").decode("latin-1")
        kind = given.partition(";")[0].strip().lower()
        if kind == MULTIPART:
            await self._read_form(request, boundary_of(given), bodies)
            return
        body = await bodies.text(request)
        if not body:
            return
        # The type is passed on as it was understood: the server must not find another one in the header.
        self._body, self._content_type = body, kind
        if kind == JSON:
            found = _object(body)
            check_json(body)
            self.params = {**found, **self.params} if self.params else found
        elif kind == FORM:
            self._take_pairs(pairs_of(body.decode("utf-8", "replace")))
        else:
            raise bad_request(f"the body is of no known type: send {JSON}, {FORM} or {MULTIPART}")

    async def load_files(self) -> Mapping[str, File]:
        """Return the files of a form, read into memory."""
        if not self.has_files:
            return {}
        return await asyncio.to_thread(_files_in, self._body, self._boundary)

    async def _read_form(self, request: WebhookRequest, boundary: bytes, bodies: "CallBodies") -> None:
        form = FormReader(boundary)
        self._spool = spool = _Spool(bodies)

        async def take(chunk: bytes) -> None:
            form.feed(chunk)
            await spool.write(chunk)

        await bodies.form(request, take)
        form.finish()
        self._take_pairs(form.fields)
        self.has_files, self._boundary = form.has_files, boundary
        self._body, self._content_type = await spool.finish(), f'{MULTIPART}; boundary="{boundary.decode()}"'

    def _take_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        check_pairs(pairs)
        self.params = {**dict(reversed(pairs)), **self.params}


class CallBodies:
    """Reads bodies, bounded in size and time. `spooled`: the bytes of all forms that are under way."""

    def __init__(self, clock: Clock, largest: int, timeout: float = BODY_TIMEOUT) -> None:
        self.spooled = 0
        self._clock = clock
        self._largest = largest
        self._timeout = timeout
        self._texts = BodyReader(clock, timeout)

    async def text(self, request: WebhookRequest) -> bytes:
        """Return a body without files. Raises ApiRefusal."""
        body = await self._texts.read(request, min(self._largest, LARGEST_TEXT_BODY))
        if isinstance(body, bytes):
            return body
        if isinstance(body, WebhookResponse):
            text = "" if body.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else body.error
            raise ApiRefusal(body.status, text, retry_after=body.retry_after or None)
        raise ClientGoneError

    async def form(self, request: WebhookRequest, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand over a body as it arrives. Raises ApiRefusal if it is too large or too slow."""
        if declared_length(request) > self._largest:
            raise ApiRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "")
        began, arrived, more = self._clock.monotonic(), 0, True
        while more:
            try:
                async with self._clock.timeout(self._timeout):
                    message = await request.receive()
            except TimeoutError:
                text = f"no part of the body arrived for {self._timeout:g} s"
                raise ApiRefusal(HTTPStatus.REQUEST_TIMEOUT, text) from None
            if message["type"] != "http.request":
                raise ClientGoneError
            more, chunk = bool(message.get("more_body")), message.get("body", b"")
            arrived += len(chunk)
            if arrived > self._largest:
                raise ApiRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "")
            # A byte every few seconds would be an upload without an end.
            if arrived < LEAST_RATE * (self._clock.monotonic() - began - self._timeout):
                text = f"the body arrives with less than {LEAST_RATE:,} bytes a second"
                raise ApiRefusal(HTTPStatus.REQUEST_TIMEOUT, text)
            if chunk:
                await take(chunk)
        request.is_read = True


class ClientGoneError(Exception):
    """The client has closed its connection: nobody reads an answer."""


class _Spool:
    """A body that is written down: in memory while it is small, else in a file that nobody else can read."""

    def __init__(self, bodies: CallBodies) -> None:
        self._bodies = bodies
        self._size = 0
        self._gathered = bytearray()
        self._file: IO[bytes] | None = None

    async def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._bodies.spooled += len(chunk)
        if self._bodies.spooled > max(MOST_SPOOLED, self._size):
            text = "too many uploads are under way here: try again"
            raise ApiRefusal(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=5)
        self._gathered += chunk
        if len(self._gathered) >= WRITE_BYTES:
            await self._flush()

    async def finish(self) -> Part:
        """Return the body as a part of a request. It can be sent until the spool is closed."""
        if self._file is None:
            return bytes(self._gathered)
        await self._flush()
        state = await asyncio.to_thread(os.stat, self._file.name)
        return DiskFile(self._file.name, state.st_size, state.st_mtime_ns)

    async def close(self) -> None:
        self._bodies.spooled -= self._size
        if self._file is not None:
            with suppress(FileNotFoundError):  # somebody has cleaned the folder of temporary files
                await asyncio.to_thread(self._file.close)

    async def _flush(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        try:
            await asyncio.to_thread(self._append, gathered)
        except OSError as error:
            text = f"the gateway has no room for the upload: {error.strerror}"
            raise ApiRefusal(HTTPStatus.INSUFFICIENT_STORAGE, text) from None

    def _append(self, content: bytearray) -> None:
        if self._file is None:  # mode 0600, deleted when it is closed
            self._file = tempfile.NamedTemporaryFile(prefix="tidegate-upload-")  # noqa: SIM115
        self._file.write(content)
        self._file.flush()


def plain(value: object) -> Any:  # noqa: ANN401  (JSON)
    """Return what a text in a form stands for, if it is JSON; else the value itself."""
    if not isinstance(value, str):
        return value
    try:
        return _decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def is_true(value: object) -> bool:
    """Return whether a parameter is true as Telegram reads it: JSON, or a text in any case."""
    return str(value).strip().lower() in _TRUE


def _object(body: bytes) -> dict[str, Any]:
    may_repeat_names = body.count(_CHAT) > 1 or _ESCAPED in body
    try:
        found = _decode_as_telegram(body) if may_repeat_names else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _decode_as_telegram(body)
    if not isinstance(found, dict):
        raise bad_request("the parameters of a call are a JSON object")
    return found


def _decode_as_telegram(body: bytes) -> Any:  # noqa: ANN401  (JSON)
    """Return what Telegram's server reads. Raises ApiRefusal.

    The usual decoder is faster, and stricter. Of two values with one name it takes the last, Telegram the
    first: a call would be paced as one to another chat. It refuses line ends and tabs that stand in a text as
    they are, as shell scripts write them, and Telegram takes them (`JsonBuilder.cpp` of tdlib/td).
    """
    try:
        found = json.loads(body.decode(), strict=False, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        return _decode(encode(found))  # refuses what is no UTF-8, such as half of a pair of surrogates
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise bad_request(CANNOT_PARSE) from None


def _files_in(body: Part, boundary: bytes) -> Mapping[str, File]:
    """Blocks: called in a thread."""
    form = FormReader(boundary, keep_files=True)
    if isinstance(body, bytes):
        form.feed(body)
    else:
        with open(body.path, "rb") as file:  # noqa: PTH123  (it is a name)
            while chunk := file.read(WRITE_BYTES):
                form.feed(chunk)
    return form.files
