"""What Telegram answers instead of a result."""

from typing import Any


class ApiError(Exception):
    """An answer that says no: Telegram's code, Telegram's words."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"ok": False, "error_code": self.code, "description": self.description}
        return body | {"parameters": self.parameters} if self.parameters else body


def bad_request(reason: str) -> ApiError:
    return ApiError(400, f"Bad Request: {reason}")


NOT_FOUND = ApiError(404, "Not Found")
UNAUTHORIZED = ApiError(401, "Unauthorized")
