"""The parts of the OpenAPI document that are written by hand: routes without FastAPI, and what all share."""

from typing import Any, Final

from tidegate.model import Priority
from tidegate.ops.api.bodies import JSON
from tidegate.ops.api.login import COOKIE, FORM
from tidegate.ops.api.message_stream import LINES
from tidegate.ops.api.parameters import EXAMPLE_ID, EXAMPLE_TIME
from tidegate.ops.api.problems import TYPE_PREFIX
from tidegate.ops.api.puts import PUT, PUT_MANY

Json = dict[str, Any]
_HTML: Final = "text/html"

SECURITY_SCHEMES: Final[Json] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token, from `tidegate token create`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "From POST /login. Unsafe requests need the header X-CSRF-Token, too.",
    },
}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def body(media_type: str, schema: Json, example: object = None) -> Json:
    return {media_type: {"schema": schema} | ({} if example is None else {"example": example})}


def _seconds(description: str) -> Json:
    return {"type": "number", "description": description}


_MESSAGE: Final[Json] = {"chat_id": 1001, "text": "Your order has left.", "priority": "high"}

NEW_MESSAGE: Final[Json] = {
    "type": "object",
    "description": "A call of the Bot API that is made when its turn comes: `chat_id`, `text` and every other"
    " parameter as Telegram spells them, beside the options of Tidegate.",
    "required": ["chat_id"],
    "properties": {
        "bot": {
            "type": "integer",
            "minimum": 1,
            "description": "The number of the bot. Not needed if there is one, or if the token is for one.",
        },
        "chat_id": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": "A number, or an @name.",
        },
        "method": {"type": "string", "default": "sendMessage", "description": "Of the Bot API."},
        "text": {"type": "string", "description": "At most 4,096 characters."},
        "priority": {"type": "string", "enum": [str(one) for one in Priority], "default": "normal"},
        "urgent": {"type": "boolean", "description": "Take a slot of the limits even if none is free."},
        "delay": _seconds("Seconds to wait before it may be sent."),
        "not_before": _seconds("The same as a time, in seconds since the Unix epoch."),
        "expires_in": _seconds("Seconds after which it is not sent any more."),
        "expires_at": _seconds("The same as a time."),
        "dedup_key": {
            "type": "string",
            "description": "A second message with this key is not accepted anew.",
        },
        "dedup_for": _seconds("Seconds in which the dedup key counts: a day, if not given."),
        "coalesce_key": {"type": "string", "description": "It replaces one that waits with the same key."},
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
        "on_unknown": {
            "type": "string",
            "enum": ["resend", "park"],
            "description": "What to do if Telegram's answer is lost: it may have been delivered.",
        },
        "extra": {
            "type": "object",
            "description": "Parameters that are sent as they are, also unknown ones.",
        },
    },
    "additionalProperties": True,
    "example": _MESSAGE,
}

SHARED_SCHEMAS: Final[Json] = {
    "NewMessage": NEW_MESSAGE,
    "Accepted": {
        "type": "object",
        "description": "The message is stored, and never lost.",
        "required": ["id", "fresh"],
        "properties": {
            "id": {"type": "string"},
            "fresh": {"type": "boolean", "description": "False: it was accepted before, with the same key."},
        },
        "additionalProperties": False,
        "example": {"id": EXAMPLE_ID, "fresh": True},
    },
    "LineError": {
        "type": "object",
        "required": ["line", "detail"],
        "properties": {
            "line": {"type": "integer", "minimum": 1, "description": "Its number, from 1."},
            "detail": {"type": "string"},
        },
        "additionalProperties": False,
    },
    "StreamSummary": {
        "type": "object",
        "description": "What became of the lines. Empty ones are not counted.",
        "required": ["lines", "accepted", "repeated", "bad", "errors"],
        "properties": {
            "lines": {"type": "integer"},
            "accepted": {"type": "integer"},
            "repeated": {"type": "integer", "description": "Of the accepted: those that were put before."},
            "bad": {"type": "integer"},
            "errors": {"type": "array", "items": ref("LineError"), "description": "The first 100 bad lines."},
        },
        "additionalProperties": False,
        "example": {
            "lines": 1000,
            "accepted": 999,
            "repeated": 0,
            "bad": 1,
            "errors": [
                {"line": 17, "detail": "chat_id 'nobody' is no chat: give a number other than 0, or an @name"}
            ],
        },
    },
    "Health": {
        "type": "object",
        "required": ["ok"],
        "properties": {
            "ok": {"type": "boolean"},
            "error": {"type": "string"},
            "problems": {"type": "object", "additionalProperties": {"type": "string"}},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "example": {"ok": True},
    },
    "Login": {
        "type": "object",
        "description": "An API token, or the code of a one-time link.",
        "properties": {"token": {"type": "string"}, "code": {"type": "string"}},
        "additionalProperties": {"type": "string"},
        "example": {"token": "tg_…"},
    },
    "LoggedIn": {
        "type": "object",
        "required": ["name", "role", "bot", "csrf_token", "expires_at"],
        "properties": {
            "name": {"type": "string"},
            "role": {"type": "string", "enum": ["viewer", "operator", "admin"]},
            "bot": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "csrf_token": {"type": "string", "description": "For the header X-CSRF-Token."},
            "expires_at": {"type": "number"},
        },
        "example": {
            "name": "ops",
            "role": "admin",
            "bot": None,
            "csrf_token": "q83v…",
            "expires_at": EXAMPLE_TIME,
        },
    },
}

PROBLEM_SCHEMA: Final[Json] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "What kind of problem it is."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, to what, and what to do."},
        "retry_after": {"type": "integer", "description": "Seconds after which to try again."},
        "errors": {
            "type": "array",
            "description": "Single fields, or lines of a stream.",
            "items": {"type": "object"},
        },
        "continue_from": {
            "type": "integer",
            "description": "The first line of a stream that was not accepted.",
        },
    },
    "additionalProperties": True,
    "example": {
        "type": f"{TYPE_PREFIX}bad-input",
        "title": "The input cannot be used",
        "status": 422,
        "detail": "text is empty: Telegram sends no empty messages",
    },
}

_LINES_EXAMPLE: Final = '{"chat_id": 1001, "text": "Hi"}\n{"chat_id": 1002, "text": "Hi"}\n'

_ANSWERS_EXAMPLE: Final = (
    '{"line": 1, "id": "9f3a41c2d5e6-0000001b", "fresh": true}\n'
    '{"lines": 1, "accepted": 1, "repeated": 0, "bad": 0, "errors": []}\n'
)

HOT_OPERATIONS: Final[dict[tuple[str, str], Json]] = {
    ("post", PUT.path): {
        "tags": ["messages"],
        "summary": "Put a message",
        "operationId": "put_message",
        "description": "Accept one message. It is stored durably when this is answered, and sent when its"
        " turn comes. `Idempotency-Key` becomes its dedup key, if it has none.",
        "requestBody": {"required": True, "content": body(JSON, ref("NewMessage"), _MESSAGE)},
        "responses": {"202": {"description": "It is accepted.", "content": body(JSON, ref("Accepted"))}},
    },
    ("post", PUT_MANY.path): {
        "tags": ["messages"],
        "summary": "Put many messages",
        "operationId": "put_messages",
        "description": "Accept a message in each line. They are put while they arrive, some hundred at a"
        " time, in order. A bad line is told by its number, and the others are accepted. If the store fails"
        " in between, the problem says how many were accepted, and with which line to go on. With"
        f" `Accept: {LINES}` the answer is a line for each line, with the id, sent while the request is read;"
        " its last line is the summary, or the problem that ended it.",
        "requestBody": {"required": True, "content": body(LINES, {"type": "string"}, _LINES_EXAMPLE)},
        "responses": {
            "200": {
                "description": "All lines were read.",
                "content": body(JSON, ref("StreamSummary"))
                | body(LINES, {"type": "string"}, _ANSWERS_EXAMPLE),
            }
        },
    },
}


def _health(summary: str, description: str) -> Json:
    return {
        "get": {
            "tags": ["status"],
            "summary": summary,
            "operationId": summary.lower().replace(" ", "_"),
            "description": description,
            "security": [],
            "responses": {
                "200": {"description": "Yes.", "content": body(JSON, ref("Health"))},
                "503": {"description": "No, and why.", "content": body(JSON, ref("Health"))},
            },
        }
    }


def _arrival(operation_id: str, summary: str, description: str, parameter: Json) -> Json:
    """A route with a secret of its own, which answers as the webhook app does."""
    answers = {
        "200": "It is stored, and will be handled.",
        "400": "It cannot be read.",
        "401": "The secret or signature is wrong, or there is no such bot or hook.",
        "404": "There is nothing here, or this process takes no updates: `tidegate api` has no handlers.",
        "408": "The body did not arrive in time.",
        "413": "The body is too large.",
        "503": "It cannot be stored now: send it again.",
    }
    return {
        "post": {
            "tags": ["webhooks"],
            "summary": summary,
            "operationId": operation_id,
            "description": description,
            "security": [],
            "parameters": [parameter | {"in": "path", "required": True}],
            "requestBody": {"content": body(JSON, {"type": "object"}, {"update_id": 1})},
            "responses": {
                status: {"description": text, "content": body(JSON, ref("Health"))}
                for status, text in answers.items()
            },
        }
    }


def _problems(*statuses: tuple[str, str]) -> Json:
    content = {"application/problem+json": {"schema": ref("Problem")}}
    return {status: {"description": text, "content": content} for status, text in statuses}


_REFUSED: Final = ("401", "The token or code is wrong, too old, or was used.")
_THROTTLED: Final = ("429", "Too many wrong ones from this address.")
_AWAY: Final = ("503", "The database cannot be reached.")
_PAGE: Final[Json] = {"content": body(_HTML, {"type": "string"}, "<!doctype html>…")}

OPEN_PATHS: Final[dict[str, Json]] = {
    "/healthz": _health("Is it alive", "The process answers. Neither Telegram nor the store is asked."),
    "/readyz": _health("Is it ready", "The gate can accept and send messages. Telegram is not asked."),
    "/login": {
        "get": {
            "tags": ["access"],
            "summary": "Log in by a link",
            "operationId": "log_in_by_link",
            "description": "Begin a session with the code of a one-time link; without one, show a form.",
            "security": [],
            "parameters": [
                {"name": "code", "in": "query", "schema": {"type": "string"}, "example": "tgl_…"},
                {"name": "next", "in": "query", "schema": {"type": "string"}, "example": "/messages"},
            ],
            "responses": {
                "200": {"description": "A form."} | _PAGE,
                "303": {"description": "Logged in: on to the first page."},
                **_problems(_REFUSED, _THROTTLED, _AWAY),
            },
        },
        "post": {
            "tags": ["access"],
            "summary": "Log in",
            "operationId": "log_in",
            "description": "Begin a session: the answer has its cookie (HttpOnly, SameSite=Strict).",
            "security": [],
            "requestBody": {
                "required": True,
                "content": body(JSON, ref("Login"), {"token": "tg_…"}) | body(FORM, ref("Login")),
            },
            "responses": {
                "200": {"description": "Logged in.", "content": body(JSON, ref("LoggedIn"))},
                "303": {"description": "Logged in by a form: on to the first page."},
                **_problems(
                    _REFUSED,
                    ("403", "The page that asks is of another site."),
                    ("408", "The body did not arrive in time."),
                    ("413", "The body is too large."),
                    ("415", "The body is of another type."),
                    ("422", "There is neither a token nor a code."),
                    _THROTTLED,
                    _AWAY,
                ),
            },
        },
    },
    "/": {
        "get": {
            "tags": ["access"],
            "summary": "The dashboard",
            "operationId": "home",
            "description": "The first of its pages; without a session, it leads to the form of /login.",
            "responses": {
                "200": {"description": "A page."} | _PAGE,
                "303": {"description": "Log in first."},
                "503": {"description": "A page that says what does not answer."} | _PAGE,
            },
        }
    },
    "/webhook/telegram/{bot_id}": _arrival(
        "receive_update",
        "Receive an update",
        "For Telegram: an update of a bot, with the secret that `tidegate webhook set` has given it.",
        {"name": "bot_id", "schema": {"type": "integer"}, "example": 42},
    ),
    "/hooks/{name}": _arrival(
        "receive_event",
        "Receive an event",
        "For payment providers and others: a signed event.",
        {"name": "name", "schema": {"type": "string"}, "example": "payments"},
    ),
}
