"""Requests as they come over the wire: read within bounds, and never shown to anybody.

A request line holds the bot's token, so nothing of a request may reach a log or an answer.
"""

import logging
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import msgspec
from aiohttp import http_exceptions, web

from tidegate.sim.telegram.call import TelegramApiError, Upload, bad_request

MAX_BODY = 50 * 1024 * 1024
MAX_LINE = 256 * 1024  # a GET may hold 4096 characters of 12 percent-encoded bytes each, and more
MAX_HEADER = 16 * 1024
CHUNK = 256 * 1024
TOO_LARGE = TelegramApiError(413, "Request Entity Too Large")

Parameters = tuple[Mapping[str, Any], Mapping[str, Upload]]
log = logging.getLogger(__name__)


class UnloggedRequestHandler(web.RequestHandler):
    """One connection. aiohttp would log and send back what it could not parse; this says only that."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  (it quotes the request)
    ) -> web.StreamResponse:
        self.log_exception(exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer has left already")
        answer = as_json(status, TelegramApiError(status, HTTPStatus(status).phrase).json())
        answer.force_close()
        return answer

    def log_exception(self, *_: object, **about: Any) -> None:  # noqa: ANN401  (aiohttp's signature)
        """The kind of an error of ours and where it was; nothing of an error of the client's."""
        error = about.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, NOT_OURS):
            place = traceback.extract_tb(error.__traceback__)[-1:]
            where = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in place)
            log.error("the simulator failed: %s at %s", type(error).__name__, where)


NOT_OURS = (http_exceptions.HttpProcessingError, web.RequestPayloadError, ConnectionError)
UNREADABLE = (ValueError, RecursionError, http_exceptions.HttpProcessingError, web.RequestPayloadError)


async def read(request: web.Request) -> Parameters:
    """Parameters and uploads, from the query and from a body of any kind that Telegram takes.

    Raises Telegram's 400 or 413, and nothing else, whatever was sent.
    """
    try:
        request.path_qs.encode()  # bytes that are no text come as surrogates, which no answer can hold
        params: dict[str, Any] = dict(request.query) if request.query_string else {}
        return await read_body(request, params) if request.can_read_body else (params, {})
    except UNREADABLE:
        raise bad_request("can't parse the request") from None
    except web.HTTPRequestEntityTooLarge:
        raise TOO_LARGE from None


async def read_answer(answer: aiohttp.ClientResponse) -> Parameters:
    """The call that a bot put into its answer to a webhook; nothing where there is none to be read."""
    try:
        return await read_body(answer, {})
    except (*UNREADABLE, TelegramApiError):
        return {}, {}


async def read_body(sent: web.Request | aiohttp.ClientResponse, params: dict[str, Any]) -> Parameters:
    kind = sent.content_type
    if kind.startswith("multipart/"):
        return await _read_multipart(sent, params)
    body = await sent.read()
    if kind == "application/json":
        content = msgspec.json.decode(body) if body else {}
        if not isinstance(content, dict):
            raise ValueError("parameters must be an object")
        params.update(content)
    else:
        params.update(parse_qsl(body.decode(), keep_blank_values=True))
    return params, {}


async def _read_multipart(sent: web.Request | aiohttp.ClientResponse, params: dict[str, Any]) -> Parameters:
    uploads: dict[str, Upload] = {}
    async for part in aiohttp.MultipartReader(sent.headers, sent.content):
        if not isinstance(part, aiohttp.BodyPartReader) or part.name is None:
            continue
        content = bytearray()
        while chunk := await part.read_chunk(CHUNK):
            content += chunk
            if sent.content.total_bytes > MAX_BODY:
                raise TOO_LARGE
        if part.filename is None:
            params[part.name] = content.decode()
        else:
            mime = part.headers.get("Content-Type", "application/octet-stream")
            f"{part.name}{part.filename}{mime}".encode()  # likewise
            uploads[part.name] = Upload(part.filename, mime, bytes(content))
    return params, uploads


def as_json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
