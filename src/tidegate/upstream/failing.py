"""A verdict as an error with data, in words that say what happened and what to do."""

import copyreg
from typing import Any, assert_never

from tidegate.errors import (
    ClosedError,
    PartlyDoneError,
    UpstreamAwayError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
    UpstreamUnknownError,
)
from tidegate.upstream.retrying import Away, Garbled, Refused, Tries, Unknown
from tidegate.upstream.wire import Request

MAYBE = "it may have happened: look before you repeat it"


def as_error(
    verdict: Refused | Away | Unknown | Garbled, api: str, asked: Request, closed: float
) -> UpstreamError:
    """`closed`: seconds for which nobody may ask, if so."""
    match verdict:
        case Refused(status, text):
            return UpstreamRefusedError(
                text, api=api, method=asked.method, endpoint=asked.path, status=status
            )
        case Away(reason):
            return UpstreamAwayError(
                reason, api=api, method=asked.method, endpoint=asked.path, retry_after=closed or None
            )
        case Unknown(reason):
            text = f"no certain answer ({reason}), {MAYBE}"
            return UpstreamUnknownError(text, api=api, method=asked.method, endpoint=asked.path)
        case Garbled(reason):
            return UpstreamGarbledError(reason, api=api, method=asked.method, endpoint=asked.path)
        case _:
            assert_never(verdict)


def too_long(api: str, asked: Request, tries: Tries, closed: float) -> UpstreamError:
    """Its patience would end before it may be asked again."""
    if tries.unsure:
        return as_error(Unknown("no answer within its patience"), api, asked, closed)
    why = f"nobody may ask for another {closed:.1f} s" if closed else "its patience is over"
    seen = f" (after {tries.attempts} attempts and {tries.refusals} refusals)" if tries != Tries() else ""
    return as_error(Away(f"not waited for: {why}{seen}"), api, asked, closed)


def hung_up(api: str, asked: Request, tries: Tries) -> UpstreamError | ClosedError:
    """The client was closed before it could be asked, or asked again."""
    if tries.unsure:
        return as_error(Unknown("the client was closed"), api, asked, 0.0)
    return ClosedError(
        f"{api}: the client was closed, and asks nothing any more: make a new one (gate.upstream(…) or"
        " gate.nocodb(…), when the gate was opened again)"
    )


def _remade(kind: type[UpstreamError], args: tuple[Any, ...], data: dict[str, Any]) -> UpstreamError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


def _taken_apart(error: UpstreamError) -> tuple[Any, ...]:
    return _remade, (type(error), error.args, vars(error))


# By itself an exception is made anew from its text alone. These cross processes with the results of tasks.
for _kind in (
    UpstreamError,
    UpstreamRefusedError,
    UpstreamAwayError,
    UpstreamUnknownError,
    UpstreamGarbledError,
    PartlyDoneError,
):
    copyreg.pickle(_kind, _taken_apart)
