"""Refuses messages that name a file on the disk of a Bot API server, as the gateway refuses such calls."""

from typing import Final

import msgspec

from tidegate.gateway.answers import CANNOT_PARSE, ApiRefusal
from tidegate.gateway.local_files import check_json
from tidegate.ops.api.problems import BAD_INPUT, MALFORMED, ProblemError


class _Extra(msgspec.Struct):
    extra: msgspec.Raw = msgspec.Raw(b"{}")


_decode: Final = msgspec.json.Decoder(_Extra).decode


def check_local_files(body: bytes) -> None:
    """Raise ProblemError if a field of a JSON object, or of its `extra`, names a local file.

    What is no JSON object is left to whoever reads it.
    """
    if b"\0" in body:  # UTF-16 and UTF-32, which a framework may take
        raise ProblemError(MALFORMED, "the body is not valid JSON in UTF-8")
    lower = body.lower()
    if b"file:" not in lower and b"\\u" not in lower:  # as most are: this is hot
        return
    try:
        check_json(body)
        check_json(bytes(_decode(body).extra))
    except ApiRefusal as refusal:
        if refusal.text != CANNOT_PARSE:
            text = "a field names a file of the Bot API server: give a file_id or an HTTP URL"
            raise ProblemError(BAD_INPUT, text) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
