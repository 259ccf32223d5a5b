"""What NocoDB says, and how it says no."""

from collections.abc import Mapping

import msgspec

JSON = "application/json; charset=utf-8"


class Answer(msgspec.Struct, frozen=True):
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionCut(ConnectionError):  # noqa: N818  (an event, as in ConnectionResetError's family)
    """No answer came. With `left` false the connection was refused: nothing arrived."""

    def __init__(self, text: str, *, left: bool = True) -> None:
        super().__init__(text)
        self.left = left


class ApiError(Exception):
    """A refusal. NocoDB has two shapes of them: `{error, message}`, and `{msg}` where there is no code."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text

    def answer(self) -> Answer:
        body = {"error": self.code, "message": self.text} if self.code else {"msg": self.text}
        return as_json(self.status, body)


def as_json(status: int, body: object) -> Answer:
    return Answer(status, {"content-type": JSON}, msgspec.json.encode(body))


def unauthorized() -> ApiError:
    return ApiError(401, "ERR_AUTHENTICATION_REQUIRED", "Authentication required - Invalid token")


def no_table(table: str) -> ApiError:
    return ApiError(404, "ERR_TABLE_NOT_FOUND", f"Table '{table}' not found")


def no_record(key: object) -> ApiError:
    return ApiError(404, "ERR_RECORD_NOT_FOUND", f"Record '{'unknown' if key is None else key}' not found")


def bad_key(key: object, column: str) -> ApiError:
    text = f"Primary key value '{key}' is invalid for column '{column}'"
    return ApiError(422, "ERR_INVALID_PK_VALUE", text)


def no_field(name: str) -> ApiError:
    return ApiError(404, "ERR_FIELD_NOT_FOUND", f"Field '{name}' not found")


def bad_offset(offset: int) -> ApiError:
    return ApiError(422, "ERR_INVALID_OFFSET_VALUE", f"Offset value '{offset}' is invalid")


def too_many_rows(most: int) -> ApiError:
    text = f"Maximum {most} entities are allowed per request"
    return ApiError(422, "ERR_MAX_PAYLOAD_LIMIT_EXCEEDED", text)


def bad_json() -> ApiError:
    return ApiError(400, "ERR_INVALID_JSON", "Invalid JSON in request body")


def bad_filter(text: str) -> ApiError:
    """Said by the grammar with quotes, and by what checks a filter that was read."""
    return ApiError(422, "ERR_INVALID_FILTER", text)


def failed_verification(text: str, column: str) -> ApiError:
    text = f"Filter verification failed: {text} on column {column}"
    return ApiError(422, "ERR_FILTER_VERIFICATION_FAILED", text)


def unreadable_filter(text: str) -> ApiError:
    """Said by the grammar without quotes."""
    return ApiError(422, "", text)


def no_route(method: str, path: str) -> ApiError:
    return ApiError(404, "", f"Cannot {method} {path}")
