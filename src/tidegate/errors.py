"""Everything Tidegate raises on purpose.

TidegateError
├── BadInputError            what was given cannot be used; the text says what to give instead
│   ├── BadRowsError         rows of an audience cannot be sent (carries rows and bad)
│   ├── ConflictError        it contradicts something that is there already
│   └── UnknownNameError     nothing of that name is known
├── ClosedError              the gate or its store is not open, or was closed meanwhile
├── StoreError               the store cannot do its work: disk full, file damaged
│   ├── StoreAwayError       it cannot be reached now
│   └── StoreFullError       it has no room for more; what is in it is delivered
├── NotTheSenderError        another process sends for this store; it is named
├── WrongKeyError            the key does not open what is stored
├── MissingExtraError        a library is not installed; the text says how to install it
├── ServiceError             Tidegate's own HTTP API did not do what a client asked (carries status and kind)
│   ├── ServiceInputError    what was given cannot be used: a BadInputError, too
│   ├── ServiceRefusedError  the token is wrong, or may not do that
│   └── ServiceAwayError     it cannot be reached, or asks to try again later (carries retry_after)
├── UpstreamError            an API behind the bot did not do what was asked (carries api, method, endpoint)
│   ├── UpstreamRefusedError     it will not do it: bad token, no such record (carries status)
│   ├── UpstreamAwayError        it could not be had: unreachable, failing, at its limit (carries retry_after)
│   ├── UpstreamUnknownError     the request left and no certain answer came: it may have happened
│   ├── UpstreamGarbledError     it answered with something that cannot be read
│   └── PartlyDoneError          some rows were written before a request failed (carries ids and done)
└── NotDeliveredError        a message or call did not do what was asked (carries method and chat_id)
    ├── DeadError            it will not be tried again (carries reason and description)
    ├── LimitedError         it would have to wait longer than the caller would (carries retry_after)
    ├── OutcomeUnknownError  the request left and no answer came: it may have happened
    ├── ExpiredError         its deadline passed before its turn came
    └── WithdrawnError       it was cancelled, or replaced by a newer one
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.scrubber import scrub_secrets


class TidegateError(Exception):
    """The root: catch this to catch every error that Tidegate raises on purpose. Its text has no secret."""

    def __init__(self, *args: object, **options: Any) -> None:  # noqa: ANN401  (of the other base class)
        super().__init__(*(scrub_secrets(arg) if isinstance(arg, str) else arg for arg in args), **options)


class BadInputError(TidegateError, ValueError):
    """An argument cannot be used. The text says what was given and what is expected."""


class BadRowsError(BadInputError):
    """Rows of an audience cannot be sent, and nothing was. `bad` counts them.

    `rows`: the number of the first of them, with the reason of each; lines of a file count from 1.
    """

    def __init__(self, text: str, *, bad: int, rows: Sequence[tuple[int, str]]) -> None:
        super().__init__(text)
        self.bad = bad
        self.rows = [(number, scrub_secrets(reason)) for number, reason in rows]


class ConflictError(BadInputError):
    """It contradicts something that is there already. The text says what, and what to do."""


class UnknownNameError(BadInputError):
    """Nothing of that name is known. The text says where to look."""


class ClosedError(TidegateError):
    """The gate or its store is not open, or was closed while this waited."""


class StoreError(TidegateError, OSError):
    """The store cannot do its work now. The text says what stands in its way."""


class StoreAwayError(StoreError):
    """The store cannot be reached now."""


class StoreFullError(StoreError):
    """The store has no room for more. What is in it is delivered, which makes room."""


class NotTheSenderError(TidegateError):
    """The store has one sender, and another process is it."""


class WrongKeyError(TidegateError):
    """The key given does not open what is stored."""


class MissingExtraError(TidegateError, ImportError):
    """A library that this needs is not installed."""


class ServiceError(TidegateError):
    """The HTTP API of Tidegate answered with an error. `kind` is the last part of its problem's type."""

    def __init__(
        self, text: str, *, status: int = 0, kind: str = "", more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind
        self.more = dict(more or {})  # what the problem says beside its text, such as `errors`


class ServiceInputError(ServiceError, BadInputError):
    """The API cannot use what was given. The text says what is expected."""


class ServiceRefusedError(ServiceError):
    """The token is missing, wrong, expired or revoked, or may not do that."""


class ServiceAwayError(ServiceError):
    """The API cannot be reached, or cannot do that now. `retry_after`: seconds, if known."""

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        kind: str = "",
        more: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(text, status=status, kind=kind, more=more)
        self.retry_after = retry_after


class UpstreamError(TidegateError):
    """An API behind the bot did not do what was asked. `endpoint` holds no query, and never a token."""

    def __init__(self, text: str, *, api: str, method: str, endpoint: str) -> None:
        super().__init__(f"{api}: {method} {endpoint}: {text}")
        self.api = api
        self.method = method
        self.endpoint = endpoint

    def __reduce__(self) -> tuple[Any, ...]:
        """By default an exception is unpickled from its text alone. These are in the results of jobs."""
        return Exception.__new__, (type(self), *self.args), vars(self)


class UpstreamRefusedError(UpstreamError):
    """The API understood the request and will not do it: repeating it as it is does not help."""

    def __init__(self, text: str, *, api: str, method: str, endpoint: str, status: int) -> None:
        super().__init__(f"{status}, {text}", api=api, method=method, endpoint=endpoint)
        self.status = status


class UpstreamAwayError(UpstreamError):
    """All attempts failed, and nothing happened. `retry_after`: seconds, if known."""

    def __init__(
        self, text: str, *, api: str, method: str, endpoint: str, retry_after: float | None = None
    ) -> None:
        super().__init__(text, api=api, method=method, endpoint=endpoint)
        self.retry_after = retry_after


class UpstreamUnknownError(UpstreamError):
    """The request left and no answer came: it may have happened, and repeating it may double it."""


class UpstreamGarbledError(UpstreamError):
    """The answer cannot be read."""


class PartlyDoneError(UpstreamError):
    """Some rows were written before a request failed; that failure is the `__cause__`.

    The first `done` rows are written, with these `ids`; what became of those in the request that failed, the
    cause says: nothing, or it is unknown (UpstreamUnknownError). Those after it were not tried.
    """

    def __init__(self, cause: UpstreamError, *, ids: Sequence[Any], of: int) -> None:
        text = f"{len(ids)} of {of} rows were done before this: {cause}"
        super().__init__(text, api=cause.api, method=cause.method, endpoint=cause.endpoint)
        self.ids = list(ids)
        self.done = len(self.ids)


def name_of(method: str, chat_id: int | str | None) -> str:
    """A call as an error names it; some have no chat."""
    return method if chat_id is None else f"{method} to {chat_id}"


class NotDeliveredError(TidegateError):
    """A message or call did not do what was asked."""

    def __init__(self, text: str, *, method: str, chat_id: int | str | None) -> None:
        super().__init__(text)
        self.method = method
        self.chat_id = chat_id


class DeadError(NotDeliveredError):
    """It will not be tried again. `reason` is a word (blocked, not_found, attempts …)."""

    def __init__(self, *, method: str, chat_id: int | str | None, reason: str, description: str) -> None:
        text = f"{name_of(method, chat_id)} is dead: {reason} ({description})"
        super().__init__(text, method=method, chat_id=chat_id)
        self.reason = reason
        self.description = scrub_secrets(description)


class LimitedError(NotDeliveredError):
    """It would have to wait longer than the caller would. `retry_after` is in seconds."""

    def __init__(self, *, method: str, chat_id: int | str | None, retry_after: float) -> None:
        text = f"{name_of(method, chat_id)} may not be made for another {retry_after:.1f} s"
        super().__init__(text, method=method, chat_id=chat_id)
        self.retry_after = retry_after


class OutcomeUnknownError(NotDeliveredError):
    """The request left and no answer came: it may have happened, and repeating it may double it."""


class ExpiredError(NotDeliveredError):
    """Its deadline passed before its turn came."""


class WithdrawnError(NotDeliveredError):
    """It was cancelled, or replaced by a newer one with the same coalesce key."""
