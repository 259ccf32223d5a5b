"""A verdict as an error with data, in words that say what happened and what to do."""

from typing import assert_never

from tidegate.errors import (
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
