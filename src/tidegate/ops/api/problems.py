"""Errors of the API as problem details (RFC 9457), and the one table from exceptions to them.

A problem says what happened, to what, and what to do. Internals of the server are in the log, never in it.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.errors import (
    BadInputError,
    BadRowsError,
    ClosedError,
    ConflictError,
    LimitedError,
    MissingExtraError,
    NotTheSenderError,
    StoreError,
    StoreFullError,
    TidegateError,
    UnknownNameError,
    WrongKeyError,
)
from tidegate.failure import describe_error, scrub
from tidegate.inbound.webhook_request import Send

log = logging.getLogger("tidegate.api")

CONTENT_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:tidegate:problem:"
AWAY_FOR: Final = 5  # seconds after which a client should try again, where nothing better is known
FULL_FOR: Final = 30
MOST_ERRORS: Final = 100  # of single fields or lines, in one problem


class ProblemKind(msgspec.Struct, frozen=True):
    """The last part of `type`; a status has one kind or several."""

    name: str
    status: int
    title: str


MALFORMED: Final = ProblemKind("malformed", 400, "The request cannot be read")
UNAUTHENTICATED: Final = ProblemKind("unauthenticated", 401, "A valid token or session is needed")
FORBIDDEN: Final = ProblemKind("forbidden", 403, "This token or session may not do that")
NOT_FOUND: Final = ProblemKind("not-found", 404, "There is nothing like that")
METHOD_NOT_ALLOWED: Final = ProblemKind("method-not-allowed", 405, "This path does not take this method")
TOO_SLOW: Final = ProblemKind("too-slow", 408, "The body did not arrive in time")
CONFLICT: Final = ProblemKind("conflict", 409, "That is not possible in its present state")
TOO_LARGE: Final = ProblemKind("too-large", 413, "The body is too large")
UNSUPPORTED_TYPE: Final = ProblemKind("unsupported-media-type", 415, "The body is of another type")
BAD_INPUT: Final = ProblemKind("bad-input", 422, "The input cannot be used")
TOO_MANY: Final = ProblemKind("too-many-requests", 429, "Too much at once")
INTERNAL: Final = ProblemKind("internal", 500, "Something went wrong in the server")
UNAVAILABLE: Final = ProblemKind("unavailable", 503, "That is not possible now")

KINDS: Final = (
    *(MALFORMED, UNAUTHENTICATED, FORBIDDEN, NOT_FOUND, METHOD_NOT_ALLOWED, TOO_SLOW, CONFLICT, TOO_LARGE),
    *(UNSUPPORTED_TYPE, BAD_INPUT, TOO_MANY, INTERNAL, UNAVAILABLE),
)
_KIND_OF_STATUS: Final = {kind.status: kind for kind in KINDS}

# From the special to the general: the first that fits counts. Seconds: when to try again.
_TABLE: Final[Sequence[tuple[type[Exception], ProblemKind, int | None]]] = (
    (LimitedError, TOO_MANY, None),
    (UnknownNameError, NOT_FOUND, None),
    (ConflictError, CONFLICT, None),
    (BadInputError, BAD_INPUT, None),
    (NotTheSenderError, CONFLICT, None),
    (WrongKeyError, UNAVAILABLE, None),
    (MissingExtraError, UNAVAILABLE, None),
    (ClosedError, UNAVAILABLE, AWAY_FOR),
    (StoreFullError, UNAVAILABLE, FULL_FOR),
    (StoreError, UNAVAILABLE, AWAY_FOR),
    (TimeoutError, UNAVAILABLE, AWAY_FOR),
    (TidegateError, CONFLICT, None),
)


class ProblemError(Exception):
    """Ends a request with a problem. `more` are extension members, beside those of RFC 9457."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,  # noqa: ANN401  (JSON)
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = scrub(detail)
        self.retry_after = None if retry_after is None else max(1, math.ceil(retry_after))
        self.more = more
        self._headers = headers or {}

    @property
    def status(self) -> int:
        return self.kind.status

    def content(self) -> dict[str, Any]:
        wait = {} if self.retry_after is None else {"retry_after": self.retry_after}
        return {
            "type": TYPE_PREFIX + self.kind.name,
            "title": self.kind.title,
            "status": self.status,
            "detail": self.detail,
            **wait,
            **self.more,
        }

    def with_members(self, **more: Any) -> "ProblemError":  # noqa: ANN401  (JSON)
        """Return the same problem with further extension members."""
        wait, headers = self.retry_after, self._headers
        return ProblemError(self.kind, self.detail, retry_after=wait, headers=headers, **self.more, **more)

    def body(self) -> bytes:
        return msgspec.json.encode(self.content())

    def headers(self) -> dict[str, str]:
        wait = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        challenge = {"www-authenticate": "Bearer"} if self.kind is UNAUTHENTICATED else {}
        return {
            "content-type": CONTENT_TYPE,
            **wait,
            **challenge,
            **self._headers,
        }


def problem_of(error: Exception) -> ProblemError:
    """Return the problem that an exception is to the client. What is not expected is logged, and not told."""
    if isinstance(error, ProblemError):
        return error
    for expected, kind, seconds in _TABLE:
        if isinstance(error, expected):
            wait = getattr(error, "retry_after", seconds)
            return ProblemError(kind, _text(error), retry_after=wait, **_rows(error))
    log.error("a request has failed: %s", describe_error(error), exc_info=error)
    return ProblemError(INTERNAL, "the error is in the log of the server")


def _rows(error: Exception) -> dict[str, Any]:
    """Return the rows of an audience that cannot be sent, by number."""
    if not isinstance(error, BadRowsError):
        return {}
    return {"bad": error.bad, "errors": [{"line": number, "detail": why} for number, why in error.rows]}


def _text(error: Exception) -> str:
    return str(error) or "it took too long" if isinstance(error, TimeoutError) else str(error)


def word_error(status: int, why: str, retry_after: int | None) -> tuple[str, bytes]:
    """Word an error that the server answers by itself, for `tidegate.inbound.server.serve`."""
    return CONTENT_TYPE, ProblemError(_KIND_OF_STATUS[status], why, retry_after=retry_after).body()


def problem_of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> ProblemError:
    """Return the problem of a status that the framework has chosen."""
    kind = _KIND_OF_STATUS.get(status, MALFORMED if status < INTERNAL.status else INTERNAL)
    return ProblemError(kind, detail, headers=headers)


def problem_of_fields(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    """Return the problem of fields that pydantic has refused. Values are not quoted: one may be a secret."""
    if any(error["type"] == "json_invalid" for error in errors):
        return ProblemError(MALFORMED, "the body is not valid JSON")
    told = [{"field": _place(error["loc"]), "detail": _why(error)} for error in errors[:MOST_ERRORS]]
    first = told[0] if told else {"field": "the request", "detail": "it cannot be used"}
    return ProblemError(BAD_INPUT, f"{first['field']}: {first['detail']}", errors=told)


def _why(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field: GET /openapi.json has those of each route"
    if error["type"] == "missing":
        return "it is missing"
    return scrub(str(error["msg"]))


def _place(location: Sequence[int | str]) -> str:
    """`query.limit`, `body.audience.3`."""
    return scrub(".".join(str(part) for part in location))


async def send_problem(problem: ProblemError, send: Send) -> None:
    """Answer with a problem."""
    body = problem.body()
    headers = {**problem.headers(), "content-length": str(len(body))}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
