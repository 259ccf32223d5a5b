"""The simulated NocoDB in this process: the v2 records API with its limit, faults and delays."""

import random
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from email.utils import formatdate
from typing import Any, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.sim.faults import LONGEST_SILENCE, PERFECT, ConnectionCut, Fate, Faults, FaultySimulator
from tidegate.sim.nocodb.answers import NocoDbAnswer, NocoDbApiError, json_answer
from tidegate.sim.nocodb.limits import NocoLimits, TokenLimiter, retry_after
from tidegate.sim.nocodb.records import LARGEST_HEAD, answer_request, read_target
from tidegate.sim.nocodb.table import SimulatedTable, Value, require_key
from tidegate.sim.sliding_window import RequestRate
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse, UpstreamTransport

LOG_KEPT = 1_000
SECONDS_KEPT = 86_400
LOGGED_PATH = 100  # characters


class SimulatedNocoDb(FaultySimulator):
    """One server. With `tokens` only these are valid; else any. Booleans are 0/1, as in SQLite, or true/false
    with `postgres`. `handle` takes a request as over the wire; the HTTP server is a thin layer over it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        limits: NocoLimits | None = None,
        faults: Faults | None = None,
        tokens: Collection[str] | None = None,
        postgres: bool = False,
        skew: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.clock = clock
        self.faults = faults or PERFECT
        self.skew = skew  # seconds that the server's clock is ahead; may be changed at any time
        self.tables: dict[str, SimulatedTable] = {}
        self.request_log = NocoDbRequestLog()
        self.limiter = TokenLimiter(limits or NocoLimits())
        self._tokens = tokens
        self._postgres = postgres
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._named = 0  # tables, ever
        self._stops = 0
        self.is_down = False

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> NocoDbAnswer:
        """Answer one request, with the delays and faults of the network.

        `target` is path and query as sent. Raises `ConnectionCut` where a client would lose its connection.
        """
        if self.is_down:
            raise ConnectionCut("the server is down", left=False)
        faults = self.faults
        if faults is PERFECT:
            return self._arrive(method, target, headers, body, "answered")
        stops, fate = self._stops, faults.fate(self._draw)
        if faults.latency_in:
            await self._travel(faults.latency_in.seconds(self._draw), stops)
        if fate != "answered":
            self.request_log.faults[fate] += 1
        if fate == "lost_request":
            raise ConnectionCut("the request was lost")
        answer = self._arrive(method, target, headers, body, fate)
        if fate == "silent":
            await self._silence(stops)
        if faults.latency_out:
            await self._travel(faults.latency_out.seconds(self._draw), stops)
        if fate == "lost_answer":
            raise ConnectionCut("the answer was lost")
        if fate == "malformed":
            return msgspec.structs.replace(answer, body=answer.body[: len(answer.body) // 2] + b"\x00")
        return answer

    def create_table(
        self,
        title: str,
        *,
        key: str = "Id",
        columns: Mapping[str, str] | None = None,
        zone: ZoneInfo | None = None,
    ) -> str:
        """Create a table and return its id. `columns`: title → NocoDB's type (SingleLineText, Checkbox …);
        without it, any field may be written. `zone`: of times without an offset in a `where`, instead of UTC.
        """
        self._named += 1
        id_ = f"m{self._named:014d}"
        self.tables[id_] = SimulatedTable(id_, title, key=key, columns=columns, postgres=self._postgres)
        self.tables[id_].zone = zone
        return id_

    def drop_table(self, table: str) -> None:
        self._table(table)
        del self.tables[table]

    def insert(
        self, table: str, rows: Sequence[Mapping[str, Any]], *, commit_after: float = 0.0
    ) -> list[int]:
        """Create rows as another program does, visible after `commit_after` seconds; returns their ids."""
        return self._table(table).insert(rows, self.server_now(), due=self._due(commit_after))

    def update(self, table: str, rows: Iterable[Mapping[str, Any]], *, commit_after: float = 0.0) -> None:
        """Change rows as another program does. UpdatedAt is the time now, also if the commit comes later."""
        found = self._table(table)
        for row in rows:
            found.update(
                self._key(found, row.get(found.key)), row, self.server_now(), due=self._due(commit_after)
            )

    def pay(self, table: str, id_: int, *, commit_after: float = 0.0) -> None:
        found = self._table(table)
        self.update(table, [{found.key: id_, "Paid": True}], commit_after=commit_after)

    def direct(self, table: str, id_: int, **fields: object) -> None:
        """Change a row by SQL, without NocoDB: UpdatedAt stays as it was."""
        found = self._table(table)
        found.update(self._key(found, id_), fields, None)

    def delete(self, table: str, ids: Iterable[int]) -> None:
        self._table(table).delete(ids)

    def rows(self, table: str) -> list[dict[str, Value]]:
        """Return the rows that are committed by now."""
        found = self._table(table)
        return [found.shown(row, found.columns) for row in found.rows.values()]

    def stop(self) -> None:
        """Take the server down: requests under way are cut, new ones refused. Rows stay."""
        self.is_down = True
        self._stops += 1

    def start(self) -> None:
        self.is_down = False

    def server_now(self) -> float:
        """Return seconds since the epoch, by the server's clock."""
        return self.clock.now() + self.skew

    def set_limits(self, limits: NocoLimits) -> None:
        """Replace the limits: windows start empty, no token is blocked, counts stay."""
        self.limiter.change(limits, self.clock.monotonic())

    def report(self) -> dict[str, Any]:
        blocked = self.limiter.blocked_seconds(self.clock.monotonic())
        return self.request_log.report() | {
            "fullest": self.limiter.fullest,
            "blocked_seconds": round(blocked, 3),
            "rows": sum(len(table.rows) for table in self.tables.values()),
        }

    def reset(self) -> None:
        """Count from zero. Tables, windows and blocks stay."""
        self.request_log.clear()
        self.limiter.forget(self.clock.monotonic())

    def _arrive(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, fate: Fate
    ) -> NocoDbAnswer:
        self.request_log.arrive(self.clock.monotonic())
        try:
            answer = self._answer(method, target, headers, body, fate)
        except NocoDbApiError as error:
            answer = error.answer()
        dated = {"date": formatdate(self.server_now(), usegmt=True), **answer.headers}
        path = target.partition("?")[0][:LOGGED_PATH]
        self.request_log.answer(
            LoggedRequest(self.clock.now(), method, path, answer.status, len(answer.body))
        )
        return msgspec.structs.replace(answer, headers=dated)

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, fate: Fate
    ) -> NocoDbAnswer:
        sizes = (len(name.encode()) + len(value.encode()) for name, value in headers.items())
        if len(target.encode()) + sum(sizes) > LARGEST_HEAD:
            return NocoDbAnswer(431, {"connection": "close"}, b"")
        token = next((value for name, value in headers.items() if name.lower() == "xc-token"), "")
        if not token or (self._tokens is not None and token not in self._tokens):
            raise NocoDbApiError(
                401, "ERR_AUTHENTICATION_REQUIRED", "Authentication required - Invalid token"
            )
        wait = self.limiter.admit(self.clock.monotonic(), token)
        if wait > 0:
            return self._refuse(wait)
        if fate == "server_error":
            return self._broken()
        request = read_target(method.upper(), target)
        self._settle(request.table)
        return json_answer(200, answer_request(self.tables, request, body, self.server_now()))

    def _refuse(self, wait: float) -> NocoDbAnswer:
        answer = NocoDbApiError(429, "", "Too many requests").answer()
        header = retry_after(self.limiter.limits.retry_after, wait, self.server_now())
        return msgspec.structs.replace(answer, headers={**answer.headers, **header})

    def _broken(self) -> NocoDbAnswer:
        """Return an error of NocoDB itself, or of a proxy before it."""
        if self._draw.random() < 0.5:  # noqa: PLR2004  (half of them)
            return NocoDbApiError(500, "", "Internal server error").answer()
        status = self._draw.choice((502, 503))
        return NocoDbAnswer(status, {"content-type": "text/html"}, b"<html><body>Bad Gateway</body></html>")

    def _settle(self, table: str) -> None:
        if table in self.tables:
            self.tables[table].settle(self.clock.monotonic())

    def _table(self, table: str) -> SimulatedTable:
        self._settle(table)
        try:
            return self.tables[table]
        except KeyError:
            raise BadInputError(
                f"there is no table {table!r:.60}: create_table returns the id, GET /sim/tables lists them"
            ) from None

    def _key(self, table: SimulatedTable, key: object) -> int:
        number = require_key(key)
        if not table.has(number):
            raise BadInputError(f"there is no record {number} in {table.title!r}")
        return number

    def _due(self, commit_after: float) -> float | None:
        return self.clock.monotonic() + commit_after if commit_after > 0 else None

    async def _travel(self, seconds: float, stops: int) -> None:
        await self.clock.sleep(seconds)
        if self._stops != stops:
            raise ConnectionCut("the server went down")

    async def _silence(self, stops: int) -> NoReturn:
        await self._travel(LONGEST_SILENCE, stops)
        raise ConnectionCut("no answer came")


class NocoWire(UpstreamTransport):
    """The wire of an `Upstream` to a simulated NocoDB in this process, without HTTP: for virtual time."""

    def __init__(self, noco: SimulatedNocoDb, *, token: str = "any", timeout: float = 10.0) -> None:  # noqa: S107  (no secret)
        self._noco = noco
        # As an HTTP client sends them: they count towards the size of a request.
        self._headers = {
            "Host": "127.0.0.1:8082",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": "Python/3.11 aiohttp/3.13.0",
            "xc-token": token,
        }
        self._timeout = timeout

    async def send(self, request: UpstreamRequest) -> UpstreamResponse | NoResponse:
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            async with self._noco.clock.timeout(self._timeout):
                answer = await self._noco.handle(request.method, request.target, self._headers, body)
        except ConnectionCut as cut:
            return NoResponse(left=cut.left, reason="disconnected" if cut.left else "connect")
        except TimeoutError:
            return NoResponse(left=True, reason="timeout")
        return UpstreamResponse(answer.status, answer.headers, answer.body)

    async def close(self) -> None:
        pass


class LoggedRequest(NamedTuple):
    at: float  # seconds since the epoch, by true time
    method: str
    path: str  # without query, cut
    status: int
    size: int  # bytes of the answer


class NocoDbRequestLog:
    """Bounded in memory. `clear` empties it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._rate = RequestRate()
        self.refused = 0
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.log: deque[LoggedRequest] = deque(maxlen=LOG_KEPT)
        self._seconds: dict[int, int] = {}  # since the first request

    def arrive(self, now: float) -> None:
        """Count a request, however it is answered. `now` is monotonic."""
        self._rate.add(now)
        second = int(now - (self._rate.first or 0.0))
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if len(self._seconds) > SECONDS_KEPT:
            del self._seconds[next(iter(self._seconds))]

    def answer(self, entry: LoggedRequest) -> None:
        self.statuses[str(entry.status)] += 1
        self.refused += entry.status == 429  # noqa: PLR2004  (too many requests)
        self.log.append(entry)

    def report(self) -> dict[str, Any]:
        """Return the counts in the words of all reports. `seconds`: from the first request to the last."""
        return {
            "requests": self._rate.requests,
            "refused": self.refused,
            "statuses": dict(sorted(self.statuses.items())),
            "faults": dict(self.faults),
            **self._rate.report(),
            "per_second": self._per_second(),
        }

    def _per_second(self) -> list[int]:
        if not self._seconds:
            return []
        last = next(reversed(self._seconds))
        first = max(next(iter(self._seconds)), last + 1 - SECONDS_KEPT)
        return [self._seconds.get(second, 0) for second in range(first, last + 1)]
