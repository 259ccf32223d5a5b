"""Answers in the form of the Bot API, and refusals as exceptions of that form."""

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tidegate.delivery.transport import NoAnswer
from tidegate.inbound.webhook_request import Send
from tidegate.network_errors import status_phrase
from tidegate.scrubber import scrub_secrets

JSON: Final = "application/json"
_JSON_HEADER: Final = (b"content-type", b"application/json")
CANNOT_PARSE: Final = "can't parse the parameters of the call"
_CODES: Final = {status_phrase(code): code for code in (400, 401, 403, 404, 409, 413)}
TICKET_HEADER: Final = b"x-tidegate-ticket"
encode = msgspec.json.Encoder().encode


class ApiRefusal(Exception):  # noqa: N818  (an answer to a client, raised on the way to it)
    """A call that the gateway itself answers with an error, as Telegram's own server would write it."""

    def __init__(self, code: int, text: str, *, retry_after: float | None = None, detail: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retry_after = None if retry_after is None else max(1, math.ceil(retry_after))
        self.detail = detail  # for the log alone

    def content(self) -> dict[str, Any]:
        phrase = status_phrase(self.code)
        text = f"{phrase}: {self.text}" if self.text else phrase
        content: dict[str, Any] = {
            "ok": False,
            "error_code": self.code,
            "description": scrub_secrets(text),
        }
        if self.retry_after is not None:
            content["parameters"] = {"retry_after": self.retry_after}
        return content


def bad_request(text: str) -> ApiRefusal:
    return ApiRefusal(HTTPStatus.BAD_REQUEST, text)


def dead(description: str) -> ApiRefusal:
    """Return the error of Telegram by which a call died: its code is the beginning of its description."""
    phrase, _, text = description.partition(": ")
    code = _CODES.get(phrase)
    return bad_request(description) if code is None else ApiRefusal(code, text)


def too_many(retry_after: float, why: str = "") -> ApiRefusal:
    """Return a 429. Libraries read the wait from its parameters, old ones from its text."""
    seconds = max(1, math.ceil(retry_after))
    text = f"{why}retry after {seconds}"
    return ApiRefusal(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=seconds)


def no_answer(answer: NoAnswer) -> ApiRefusal:
    """Return what a client is told if Telegram gave no answer: whether the call may have been made."""
    if answer.left:
        text = f"the call left and was not answered ({answer.reason}): it may have been made"
        return ApiRefusal(HTTPStatus.GATEWAY_TIMEOUT, text)
    return ApiRefusal(
        HTTPStatus.BAD_GATEWAY, f"Telegram cannot be reached ({answer.reason}): the call was not made"
    )


async def send_answer(
    send: Send,
    status: int,
    body: bytes,
    content_type: str = JSON,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    more: bool = False,
) -> None:
    """Send an answer. With `more`, the caller ends it by an empty part of the body."""
    kind = _JSON_HEADER if content_type == JSON else (b"content-type", header_value(content_type))
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": more})


def header_value(text: str) -> bytes:
    """Return a header of Telegram's server, or of a proxy before it, so that it can be sent."""
    return "".join(one for one in text if one.isprintable()).encode("latin-1", "replace")


async def send_content(
    send: Send,
    content: Mapping[str, Any],
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    more: bool = False,
) -> None:
    """Send an answer of the gateway itself; its status is that of its error code."""
    status = HTTPStatus.OK if content["ok"] else int(content["error_code"])
    if (seconds := content.get("parameters", {}).get("retry_after")) is not None:
        headers = (*headers, (b"retry-after", b"%d" % seconds))
    await send_answer(send, status, encode(content), headers=headers, more=more)
