"""The verbs of the HTTP API as values: requests, and readers of their answers. No wire is here."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from tidegate.clock import Clock
from tidegate.errors import (
    BadInputError,
    ServiceAwayError,
    ServiceError,
    ServiceInputError,
    ServiceRefusedError,
)
from tidegate.model import ChatId, File, Priority, State
from tidegate.outbox.admission import plain_value
from tidegate.outbox.message_times import absolute_times

T = TypeVar("T")
Fields = Mapping[str, Any]

ATTEMPTS: Final = 4
FIRST_PAUSE: Final = 0.25  # seconds, doubled with each attempt
LONGEST_PAUSE: Final = 10.0  # seconds; a server that asks for more is not asked again
LINES_PER_REQUEST: Final = 2_000
BYTES_PER_REQUEST: Final = 2_000_000
MOST_ERRORS: Final = 100  # of lines, in a summary
BAD_REQUEST, UNPROCESSABLE = 400, 422
JSON, LINES = "application/json", "application/x-ndjson"
REPEATED: Final = frozenset((408, 429, 502, 503, 504))  # statuses after which nothing has happened


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A message and its state. A token of a viewer sees neither `params` nor `description` nor `result`."""

    id: str
    bot: int
    chat_id: ChatId
    method: str
    state: State
    priority: Priority
    created_at: float
    settled_at: float | None = None
    attempts: int = 0
    reason: str | None = None
    description: str | None = None
    params: dict[str, Any] | None = None
    result: Any = None
    dedup_key: str | None = None


class WhyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message waits; `expected_in` seconds, None if that depends on a person or a process."""

    state: State
    waits_for: list[str]
    expected_in: float | None = None
    reason: str | None = None


class LineError(msgspec.Struct, frozen=True):
    """A message of `send_many` that was not accepted: its place, from 1, and why."""

    line: int
    detail: str


class SendSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of many messages. `errors` are the first of the `bad` ones."""

    accepted: int = 0
    repeated: int = 0
    bad: int = 0
    errors: list[LineError] = []


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The queue: `stats` has high, normal, low, retry and dlq."""

    stats: dict[str, int]
    total_queued: int
    total_failed: int
    sending: int = 0
    delivered: int = 0
    refused: int = 0
    oldest_seconds: float | None = None  # for so long the oldest message that waits could have gone

    @property
    def waiting(self) -> int:
        return self.total_queued


class LettersDone(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that were found, and those that were changed. `more`: call it again for the rest."""

    selected: int
    done: int
    more: bool


class BroadcastInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A broadcast: its state, and its counts: read, accepted, delivered, dead, waiting and others."""

    bot: int
    name: str
    state: str
    total: int | None = None
    counts: dict[str, int] = {}
    trouble: str | None = None


class BotLimitsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a bot, written `30/1`. `own`: the names of those that were set for it."""

    bot: int
    bot_rate: str
    chat_rate: str
    group_rate: str
    paid_rate: str
    reply_burst: int
    own: list[str]
    learned: str | None = None
    closed_until: float | None = None
    obstacle: str | None = None


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    headers: dict[str, str] = {}
    body: bytes | None = None


class ApiResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes


def _raise(error: ServiceError) -> NoReturn:
    raise error


class ApiVerb(msgspec.Struct, Generic[T], frozen=True):
    """A request, and the reader of its answer. `recover` returns what some errors mean, and raises others."""

    request: ApiRequest
    read: Callable[[bytes], T]
    recover: Callable[[ServiceError], T] = _raise

    def outcome(self, response: ApiResponse) -> T | ServiceError:
        """Return the result, or the error that the answer means."""
        return self.read(response.body) if response.status < BAD_REQUEST else error_of(response)


class ApiVerbs:
    """The verbs of the API as values. `bot` is that of the client, for calls that name none."""

    def __init__(self, bot: int | None, clock: Clock) -> None:
        self._bot = bot
        self._clock = clock

    def send(self, fields: Fields, key: str | None = None) -> ApiVerb[str]:
        body = msgspec.json.encode(self._message(fields))
        request = ApiRequest(method="POST", path="/api/v1/messages", headers=_keyed(key=key), body=body)
        return ApiVerb(request, lambda answer: _decoded(answer, _Accepted).id)

    def send_lines(self, lines: bytes) -> ApiVerb[SendSummary]:
        headers = _keyed(content_type=LINES)
        request = ApiRequest(method="POST", path="/api/v1/messages/stream", headers=headers, body=lines)
        return ApiVerb(request, lambda answer: _decoded(answer, SendSummary), _summary_of)

    def line(self, shared: Fields, item: object) -> bytes:
        """Return a message as a line of a stream: its fields go before those shared. Raises BadInputError."""
        if not isinstance(item, Mapping):
            kind = type(item).__name__
            raise BadInputError(f"a message is a mapping, such as {{'chat_id': 1, 'text': 'Hi'}}: got {kind}")
        return msgspec.json.encode(self._message({**shared, **item})) + b"\n"

    @staticmethod
    def get(message_id: str) -> ApiVerb[MessageInfo | None]:
        return _looking(f"/api/v1/messages/{quote(message_id, safe='')}", MessageInfo)

    @staticmethod
    def why(message_id: str) -> ApiVerb[WhyInfo | None]:
        return _looking(f"/api/v1/messages/{quote(message_id, safe='')}/why", WhyInfo)

    @staticmethod
    def cancel(message_id: str) -> ApiVerb[bool]:
        path = f"/api/v1/messages/{quote(message_id, safe='')}/cancel"
        request = ApiRequest(method="POST", path=path, headers=_keyed())
        return ApiVerb(request, lambda _: True, lambda error: _unless(error, {404, 409}, otherwise=False))

    @staticmethod
    def reprioritize(message_id: str, priority: str) -> ApiVerb[bool]:
        path = f"/api/v1/messages/{quote(message_id, safe='')}/priority"
        body = msgspec.json.encode({"priority": priority})
        request = ApiRequest(method="POST", path=path, headers=_keyed(), body=body)
        return ApiVerb(request, lambda _: True, lambda error: _unless(error, {404, 409}, otherwise=False))

    @staticmethod
    def stats() -> ApiVerb[QueueStats]:
        return _reading("/queue/stats", QueueStats)

    def dead_letters(self, filters: Mapping[str, object], cursor: str | None) -> ApiVerb["_LetterPage"]:
        given = {"bot": self._bot, "limit": 200, "cursor": cursor} | dict(filters)
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return _reading(f"/api/v1/dead-letters?{query}", _LetterPage)

    def replay(self, selection: Mapping[str, object]) -> ApiVerb[LettersDone]:
        given = {} if "ids" in selection or self._bot is None else {"bot": self._bot}
        return _posting("/api/v1/dead-letters/replay", given | dict(selection), LettersDone)

    def broadcast(self, name: str, audience: Iterable[object], fields: Fields) -> ApiVerb[BroadcastInfo]:
        rows = [_plain(row, f"audience[{at}]") for at, row in enumerate(audience)]
        body = {"name": name, "audience": rows, **self._message(fields)}
        return _posting("/api/v1/broadcasts", body, BroadcastInfo)

    def progress(self, name: str) -> ApiVerb[BroadcastInfo | None]:
        query = "" if self._bot is None else f"?bot={self._bot}"
        return _looking(f"/api/v1/broadcasts/{quote(name, safe='')}{query}", BroadcastInfo)

    def limits(self) -> ApiVerb["_LimitsPage"]:
        query = "" if self._bot is None else f"&bot={self._bot}"
        return _reading(f"/api/v1/limits?limit=1{query}", _LimitsPage)

    def set_limits(self, bot: int | None, rates: Mapping[str, str | None]) -> ApiVerb[BotLimitsInfo]:
        given = {name: rate for name, rate in rates.items() if rate is not None}
        body = msgspec.json.encode(given)
        request = ApiRequest(method="PUT", path=self._limits_path(bot), headers=_keyed(), body=body)
        return ApiVerb(request, lambda answer: _decoded(answer, BotLimitsInfo))

    def reset_limits(self, bot: int | None) -> ApiVerb[BotLimitsInfo]:
        request = ApiRequest(method="DELETE", path=self._limits_path(bot), headers=_keyed())
        return ApiVerb(request, lambda answer: _decoded(answer, BotLimitsInfo))

    def open_limits(self, bot: int | None, chat_id: ChatId | None) -> ApiVerb[bool]:
        body = msgspec.json.encode({} if chat_id is None else {"chat_id": chat_id})
        path = f"{self._limits_path(bot)}/open"
        request = ApiRequest(method="POST", path=path, headers=_keyed(), body=body)
        return ApiVerb(request, lambda answer: _decoded(answer, _Opened).opened)

    def _limits_path(self, bot: int | None) -> str:
        number = self._bot if bot is None else bot
        if number is None:
            raise BadInputError("which bot? give bot=42, or make the client for one bot")
        return f"/api/v1/bots/{number}/limits"

    def _message(self, fields: Fields) -> dict[str, Any]:
        """Return the fields as JSON has them. Raises BadInputError."""
        made = absolute_times(
            {name: value for name, value in fields.items() if value is not None}, self._clock.now()
        )
        made = {name: _plain(value, name) for name, value in made.items()}
        return made if self._bot is None or "bot" in made else {"bot": self._bot, **made}


def _plain(value: object, name: str) -> Any:  # noqa: ANN401  (JSON)
    """Return a value as JSON has it. Raises BadInputError for others, and for a file: the API takes none."""
    plain = plain_value(value, name)
    if _has_file(plain):
        raise BadInputError(f"{name} is a file: the API takes a file_id of Telegram, or a URL")
    return plain


def _has_file(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_file, value.values() if isinstance(value, dict) else value))
    return isinstance(value, File)


class _Accepted(msgspec.Struct, frozen=True):
    id: str


class _LetterPage(msgspec.Struct, frozen=True):
    items: list[MessageInfo]
    next_cursor: str | None = None


class _LimitsPage(msgspec.Struct, frozen=True):
    bots: list[BotLimitsInfo]


class _Opened(msgspec.Struct, frozen=True):
    opened: bool


class _Problem(msgspec.Struct, frozen=True):
    type: str = ""
    detail: str = ""
    retry_after: float | None = None


def _keyed(content_type: str = JSON, key: str | None = None) -> dict[str, str]:
    return {"content-type": content_type, "idempotency-key": key or uuid.uuid4().hex}


def _reading(path: str, kind: type[T]) -> ApiVerb[T]:
    return ApiVerb(ApiRequest(method="GET", path=path), lambda answer: _decoded(answer, kind))


def _looking(path: str, kind: type[T]) -> "ApiVerb[T | None]":
    """As `_reading`, where something that is not known is no error."""
    request = ApiRequest(method="GET", path=path)
    return ApiVerb(
        request, lambda answer: _decoded(answer, kind), lambda error: _unless(error, {404}, otherwise=None)
    )


def _unless(error: ServiceError, statuses: set[int], otherwise: T) -> T:
    if error.status not in statuses:
        raise error
    return otherwise


def _summary_of(error: ServiceError) -> SendSummary:
    """Return the summary of a stream of which no line was accepted."""
    if error.status != UNPROCESSABLE or "bad" not in error.more:
        raise error
    return msgspec.convert(error.more, SendSummary)


def _posting(path: str, body: Mapping[str, object], kind: type[T]) -> ApiVerb[T]:
    request = ApiRequest(method="POST", path=path, headers=_keyed(), body=msgspec.json.encode(body))
    return ApiVerb(request, lambda answer: _decoded(answer, kind))


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ServiceError(f"the answer cannot be read: is this the address of a Tidegate? {error}") from None


def error_of(response: ApiResponse) -> ServiceError:
    """Return the error that an answer means."""
    try:
        problem, more = msgspec.json.decode(response.body, type=_Problem), msgspec.json.decode(response.body)
    except msgspec.MsgspecError:
        problem, more = _Problem(), {}
    text = problem.detail or f"the API has answered {response.status}"
    kind = problem.type.rpartition(":")[2]
    if response.status in REPEATED:
        after = problem.retry_after
        return ServiceAwayError(text, status=response.status, kind=kind, more=more, retry_after=after)
    errors: dict[int, type[ServiceError]] = {
        400: ServiceInputError,
        401: ServiceRefusedError,
        403: ServiceRefusedError,
        413: ServiceInputError,
        422: ServiceInputError,
    }
    return errors.get(response.status, ServiceError)(text, status=response.status, kind=kind, more=more)


def pause_before(attempt: int, error: ServiceError) -> float | None:
    """Return the seconds to wait before an attempt, after the one before has failed; None: give up."""
    in_progress = error.status == 409 and "retry_after" in error.more  # noqa: PLR2004  (of the same key)
    if attempt > ATTEMPTS or not (isinstance(error, ServiceAwayError) or in_progress):
        return None
    asked = error.retry_after if isinstance(error, ServiceAwayError) else 1.0
    pause: float = asked or FIRST_PAUSE * 2 ** (attempt - 2)
    return pause if pause <= LONGEST_PAUSE else None


def added(one: SendSummary, other: SendSummary, lines_before: int) -> SendSummary:
    """Return the summary of both; the lines of the other come after `lines_before` others."""
    moved = [LineError(error.line + lines_before, error.detail) for error in other.errors]
    return SendSummary(
        accepted=one.accepted + other.accepted,
        repeated=one.repeated + other.repeated,
        bad=one.bad + other.bad,
        errors=(one.errors + moved)[:MOST_ERRORS],
    )


class LineChunks:
    """Collects lines until there are enough for a request."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> tuple[bytes, int] | None:
        """Return the lines of a request and their number, if this one completes it."""
        self._lines.append(line)
        self._size += len(line)
        is_full = len(self._lines) >= LINES_PER_REQUEST or self._size >= BYTES_PER_REQUEST
        return self.rest() if is_full else None

    def rest(self) -> tuple[bytes, int] | None:
        """Return those that are left."""
        lines, self._lines, self._size = self._lines, [], 0
        return (b"".join(lines), len(lines)) if lines else None
