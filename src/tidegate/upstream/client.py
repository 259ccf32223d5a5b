"""The only way to an API: through its limiter, with retries, counted and told."""

from types import TracebackType
from typing import Any, Final, NoReturn, Self

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamGarbledError
from tidegate.model import Rate
from tidegate.upstream.asking import Asking, Question
from tidegate.upstream.cache import Cache
from tidegate.upstream.exchange import Hook
from tidegate.upstream.limiter.base import Limiter
from tidegate.upstream.limiter.memory import MemoryLimiter
from tidegate.upstream.making import Query, made
from tidegate.upstream.retry_after import LONGEST
from tidegate.upstream.retrying import READS, RetryPolicy
from tidegate.upstream.telling import Telling
from tidegate.upstream.totals import Totals
from tidegate.upstream.wire import Request, Response, Wire

RATE: Final = Rate(5, 1)
LOCKOUT: Final = 30.0  # seconds, when a 429 does not say for how long


class Upstream:
    """One for each API and token; the wire is nobody else's. Belongs to one event loop.

    Waiting for a turn has no end of its own: a timeout around a call may end it at any moment, and no slot
    is lost. Who waits when it is closed is told so at once.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        name: str = "api",
        limiter: Limiter | None = None,
        clock: Clock | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        lockout: float = LOCKOUT,
    ) -> None:
        if not 0 <= lockout <= LONGEST:
            raise BadInputError(f"a lockout of {lockout} s: give 0 to {LONGEST:g} seconds, such as 30")
        clock = clock or Clock()
        self.name = name
        self.totals = Totals()
        self._limiter = limiter or MemoryLimiter(RATE, clock)
        self._telling = Telling(self.totals)
        self._asking = Asking(
            name, wire, self._limiter, clock, policy=policy, lockout=lockout, telling=self._telling
        )
        self._cache = Cache(clock)

    @property
    def rate(self) -> Rate:
        """What the limiter allows now: less than at the start where a 429 has taught so."""
        return self._limiter.rate

    @property
    def closed_for(self) -> float:
        """Seconds until the API's lockout ends; 0.0 if there is none."""
        return self._limiter.closed_for

    def on_exchange(self, hook: Hook) -> None:
        """Call `hook` for each request on the wire, retries included, as soon as its end is known."""
        self._telling.add(hook)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Any = None,  # noqa: ANN401  (whatever JSON can say)
        background: bool = False,
        idempotent: bool | None = None,
        record: str | None = None,
    ) -> Response:
        """Wait for a turn, ask, ask again where that is safe. The response is a good one (2xx).

        `background` lets all others go first. `idempotent` says that repeating does no harm, for methods
        that do not promise it. `record`, an id or a count, is for the log. A number in the query is sent as a
        text.
        Raises UpstreamRefusedError, UpstreamAwayError, UpstreamUnknownError, UpstreamGarbledError.
        """
        request = made(method, path, query, body)
        asked = Question(request=request, idempotent=idempotent, background=background, record=record)
        try:
            return await self._asking.ask(asked)
        finally:
            if request.method not in READS:  # whatever became of it, it may have changed something
                self._cache.drop(request.path)

    async def read(
        self,
        path: str,
        *,
        query: Query = (),
        fresh_for: float = 0.0,
        background: bool = False,
        record: str | None = None,
    ) -> Any:  # noqa: ANN401  (whatever JSON can say)
        """GET, decoded. Each caller gets objects of his own.

        With `fresh_for` an answer that came less than so many seconds ago will do, and all who ask the same
        at the same time share one request. A write through this client to the same path, or to one above
        or below it, drops what is kept.
        """
        request = made("GET", path, query)

        async def load() -> bytes:
            asked = Question(request=request, background=background, record=record)
            return self._plain(request, await self._asking.ask(asked))

        self._asking.check_open(request)
        if fresh_for <= 0:
            return self._decoded(request, await load())
        key = (request.path, request.query)
        body = self._cache.find(key, fresh_for)
        if body is None:
            body = await self._cache.load(key, load, background=background)
        else:
            self.totals.cached += 1
        return self._decoded(request, body)

    async def close(self) -> None:
        """Hang up. What is under way ends with an error."""
        await self._cache.close()
        await self._asking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client is not pickled: it holds connections and a token; make one in each process")

    def _plain(self, request: Request, answer: Response) -> bytes:
        packed = answer.headers.get("content-encoding", "identity").lower()
        if packed in {"", "identity"}:
            return answer.body
        raise self._garbled(f"its answer is packed ({packed:.20}), which was not asked for", request)

    def _decoded(self, request: Request, body: bytes) -> Any:  # noqa: ANN401
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"its answer is not JSON ({len(body)} bytes): is this the address of the API?"
            raise self._garbled(text, request) from error

    def _garbled(self, text: str, request: Request) -> UpstreamGarbledError:
        return UpstreamGarbledError(text, api=self.name, method=request.method, endpoint=request.path)
