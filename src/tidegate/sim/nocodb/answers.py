"""NocoDB's answers and errors."""

from collections.abc import Mapping

import msgspec

JSON = "application/json; charset=utf-8"


class NocoDbAnswer(msgspec.Struct, frozen=True):
    """One answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NocoDbApiError(Exception):
    """An error. NocoDB has two shapes: `{error, message}`, and `{msg}` if there is no code."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text

    def answer(self) -> NocoDbAnswer:
        body = {"error": self.code, "message": self.text} if self.code else {"msg": self.text}
        return json_answer(self.status, body)


def json_answer(status: int, body: object) -> NocoDbAnswer:
    return NocoDbAnswer(status, {"content-type": JSON}, msgspec.json.encode(body))


def no_record(key: object) -> NocoDbApiError:
    return NocoDbApiError(
        404, "ERR_RECORD_NOT_FOUND", f"Record '{'unknown' if key is None else key}' not found"
    )


def bad_json() -> NocoDbApiError:
    return NocoDbApiError(400, "ERR_INVALID_JSON", "Invalid JSON in request body")


def bad_filter(text: str) -> NocoDbApiError:
    """The error of the grammar with quotes, and of the check of a filter."""
    return NocoDbApiError(422, "ERR_INVALID_FILTER", text)


def failed_verification(text: str, column: str) -> NocoDbApiError:
    text = f"Filter verification failed: {text} on column {column}"
    return NocoDbApiError(422, "ERR_FILTER_VERIFICATION_FAILED", text)


def unreadable_filter(text: str) -> NocoDbApiError:
    """The error of the grammar without quotes."""
    return NocoDbApiError(422, "", text)


def no_route(method: str, path: str) -> NocoDbApiError:
    return NocoDbApiError(404, "", f"Cannot {method} {path}")
