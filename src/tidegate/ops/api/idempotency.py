"""Idempotency-Key: a request that is repeated with the same key is done once, and gets the first answer.

The answer is kept for 24 hours, if it says that the request was done. One that failed may be repeated. Single
messages need none of this: the key becomes their dedup key, which the outbox knows.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from tidegate.clock import Clock
from tidegate.database.idempotency import OnceKey, StoredAnswer
from tidegate.errors import StoreError
from tidegate.ops.access import Principal
from tidegate.ops.api.problems import BAD_INPUT, CONFLICT, ProblemError

log = logging.getLogger("tidegate.api")

IDEMPOTENCY_KEY: Final = "idempotency-key"
REPLAYED: Final = "idempotency-replayed"  # a header of an answer that was given before
LONGEST_KEY: Final = 200  # characters
LARGEST_KEPT: Final = 1_000_000  # bytes of an answer
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


class AnswerStore(Protocol):
    """Where the answers are kept. Raises StoreAwayError while it cannot be reached."""

    async def begin(self, key: OnceKey, fingerprint: bytes, now: float) -> StoredAnswer | None:
        """Reserve the key and return None, or return what is known of the request that has it.

        Of several that begin at the same time, one gets None. A reservation whose process has ended, and an
        answer that is a day old, give way.
        """
        ...

    async def finish(self, key: OnceKey, status: int, body: bytes | None) -> None:
        """Store the answer."""

    async def abandon(self, key: OnceKey) -> None:
        """Let the key be used again: the request has failed, and changed nothing."""


def idempotency_key(given: str | None) -> str | None:
    """Return the key of a request; None if it has none. Raises ProblemError for one that cannot be used."""
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        text = f"Idempotency-Key: give 1 to {LONGEST_KEY} visible characters, such as a UUID"
        raise ProblemError(BAD_INPUT, text)
    return given


def owner_of(principal: Principal) -> str:
    """Return whose keys they are: a token's, with all its sessions, or those of a session without one."""
    return (
        f"token:{principal.token_id}" if principal.token_id is not None else f"session:{principal.session_id}"
    )


def fingerprint(request: Request, body: bytes) -> bytes:
    """Return what tells one request from another."""
    head = f"{request.method} {request.url.path}?{request.url.query}\n"
    return hashlib.sha256(head.encode() + body).digest()


async def answer_once(
    store: AnswerStore,
    key: OnceKey,
    request: bytes,
    act: Callable[[], Awaitable[Response]],
    clock: Clock,
    *,
    keeps_answer: bool,
) -> Response:
    """Do it, unless it was done. Raises ProblemError for a key that belongs to another request."""
    known = await store.begin(key, request, clock.now())
    if known is not None:
        return _repeated(known, request)
    try:
        response = await act()
    except Exception:
        await _abandon(store, key)
        raise
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        await _abandon(store, key)
        return response
    body = bytes(response.body)
    is_kept = keeps_answer and len(body) <= LARGEST_KEPT
    try:
        await store.finish(key, response.status_code, body if is_kept else None)
    except StoreError as error:
        log.warning("the answer to a request with an Idempotency-Key could not be kept: %s", error)
    return response


async def _abandon(store: AnswerStore, key: OnceKey) -> None:
    try:
        await store.abandon(key)
    except StoreError as error:
        log.warning("an Idempotency-Key stays reserved for some minutes: %s", error)


def _repeated(known: StoredAnswer, request: bytes) -> Response:
    if known.fingerprint != request:
        raise ProblemError(BAD_INPUT, "this Idempotency-Key was used for another request: use a new one")
    if known.status is None:
        raise ProblemError(CONFLICT, "the first request with this Idempotency-Key is not done", retry_after=1)
    if known.body is None:
        raise ProblemError(CONFLICT, "this was done already, and its answer is not kept")
    media_type = "application/json" if known.body else None
    return Response(known.body, known.status, {REPLAYED: "true"}, media_type)
