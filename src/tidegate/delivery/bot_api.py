"""The Bot API client over HTTP, with aiohttp. Its errors end here: callers get an answer or a reason."""

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

import aiohttp
import msgspec
from yarl import URL

from tidegate.clock import Clock
from tidegate.delivery.request_body import (
    FileSpot,
    Part,
    RequestBody,
    as_form,
    as_json,
    files_in,
    inspect_file,
    replace_files,
)
from tidegate.delivery.transport import ApiAnswer, NoAnswer, RawAnswer
from tidegate.network_errors import network_failure

ANSWER_TIMEOUT: Final = 20.0  # seconds from the last byte of a request to the last of its answer
CONNECTIONS_PER_HOST: Final = 100
CONNECT_TIMEOUT: Final = 30.0  # a bound for callers whose deadline is far
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)  # a request has its own
DOWNLOAD_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=60.0)
DNS_CACHE: Final = 300
LARGEST_ANSWER: Final = 4 * 1024 * 1024
JSON: Final = "application/json"
MOST_FILE_IDS: Final = 4_096
SHORTEST_UPLOAD_WAIT: Final = 1.0  # seconds until a message comes back whose file is being uploaded
FileKey = Hashable  # bot, kind and content
T = TypeVar("T")

# Telegram's texts for a file_id that this bot cannot use, or not for this.
_REJECTED = re.compile(
    r"wrong (?:remote )?file|file_id|file_reference|type of file mismatch|can't use file of type"
)
SessionFactory = Callable[[], Awaitable[aiohttp.ClientSession]]
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class RawCall(NamedTuple):
    """A call as somebody else has written it."""

    method: str
    content_type: str
    parts: Sequence[Part]
    query: str = ""


class BotApiClient:
    """A transport with one pool of connections, opened at the first call. Belongs to one event loop.

    A POST is never repeated by aiohttp (only idempotent methods are), redirects are not followed.
    A file is uploaded once for each bot and kind; later calls name it by its file_id. The caption belongs to
    the call; thumbnail, title and duration are those of the first upload.
    `lend` gives a session that its owner closes, for instance one with a proxy.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        timeout: float = ANSWER_TIMEOUT,
        connections: int = CONNECTIONS_PER_HOST,
        file_ids: "FileIdCache | None" = None,
        lend: SessionFactory | None = None,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._connections = connections
        self._file_ids = file_ids or FileIdCache()
        self._lend = lend
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        """See `BotApiTransport.call`. A connection that was cut before the server read anything counts as
        left, too: it looks the same from here.
        """
        url = url_of(api_url, token, method)
        trip = _Request(
            self._clock,
            url,
            deadline,
            self._timeout,
            on_left=on_left,
            on_written=on_written,
            wait_for_upload=wait_for_upload,
        )
        spots = files_in(method, params)
        if not spots:
            body = as_json(params)
            return await trip.bounded(lambda: self._post(trip, JSON, [body]))
        owner = (api_url, token.partition(":")[0])
        answer = await trip.bounded(lambda: self._post_files(trip, owner, params, spots))
        if not trip.rejected:
            return answer
        # The id is forgotten by now: this time the file is uploaded, by this call or another one.
        again = _Request(self._clock, url, deadline, self._timeout, wait_for_upload=wait_for_upload)
        return await again.bounded(lambda: self._post_files(again, owner, params, spots))

    async def forward(
        self,
        token: str,
        call: "RawCall",
        *,
        api_url: str,
        deadline: float,
        timeout: float | None = None,  # noqa: ASYNC109  (of the answer, from the last byte that was sent)
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> RawAnswer | NoAnswer:
        """Make a call whose body is sent as it is, and return the answer as it came. See `call`."""
        url = url_of(api_url, token, call.method) + (f"?{call.query}" if call.query else "")
        trip = _Request(
            self._clock, url, deadline, timeout or self._timeout, on_left=on_left, on_written=on_written
        )
        return await trip.bounded(lambda: self._exchange(trip, call.content_type, call.parts, quoted=True))

    @asynccontextmanager
    async def download(
        self, url: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse | NoAnswer]:
        """Ask for a file. The response is open, and its body not read yet, while the caller holds it."""
        async with AsyncExitStack() as stack:
            found: aiohttp.ClientResponse | NoAnswer
            try:
                session = await self._lend() if self._lend is not None else self._open()
                asking = session.get(
                    URL(url, encoded=True), headers=headers, allow_redirects=False, timeout=DOWNLOAD_TIMEOUT
                )
                found = await stack.enter_async_context(asking)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                found = NoAnswer(left=True, reason=network_failure(error))
            yield found

    async def close(self) -> None:
        """Close the connections. Calls under way return without an answer, later ones do not leave."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _post(self, trip: "_Request", content_type: str, parts: Sequence[Part]) -> ApiAnswer | NoAnswer:
        answer = await self._exchange(trip, content_type, parts)
        return answer if isinstance(answer, NoAnswer) else ApiAnswer(answer.status, decode_answer(answer))

    async def _exchange(
        self, trip: "_Request", content_type: str, parts: Sequence[Part], *, quoted: bool = False
    ) -> RawAnswer | NoAnswer:
        if self._closed:
            return NoAnswer(left=False, reason="closed")
        body = trip.load(content_type, parts)
        try:
            session = await self._lend() if self._lend is not None else self._open()
            url = URL(trip.url, encoded=True) if quoted else trip.url  # by the client
            async with session.post(url, data=body, allow_redirects=False, timeout=NO_TIMEOUT) as response:
                kind = response.headers.get("Content-Type", JSON)
                return RawAnswer(response.status, kind, await _read(response))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            word = body.failure or network_failure(error)
            return NoAnswer(body.left, word)

    async def _post_files(
        self, trip: "_Request", owner: FileKey, params: Mapping[str, Any], spots: Sequence[FileSpot]
    ) -> ApiAnswer | NoAnswer:
        seen = await asyncio.to_thread(lambda: [inspect_file(spot.file) for spot in spots])
        keys: list[FileKey] = [
            (owner, spot.kind, content) for spot, (_, content) in zip(spots, seen, strict=True)
        ]
        reusable = {key: spot for key, spot in zip(keys, spots, strict=True) if spot.kind is not None}
        if not trip.wait_for_upload and (since := self._file_ids.uploading(reusable)) is not None:
            # The longer it takes already, the longer it is likely to take: nobody comes back too often.
            elapsed = asyncio.get_running_loop().time() - since
            return NoAnswer(left=False, reason="uploading", wait=max(SHORTEST_UPLOAD_WAIT, elapsed))
        async with self._file_ids.claim(reusable) as known:
            names = [known.get(key) or f"attach://f{at}" for at, key in enumerate(keys)]
            uploads = [
                (f"f{at}", spot.file, part)
                for at, (key, spot, (part, _)) in enumerate(zip(keys, spots, seen, strict=True))
                if key not in known
            ]
            named = iter(names)
            filled = {name: replace_files(value, named) for name, value in params.items()}
            content_type, parts = as_form(filled, uploads) if uploads else (JSON, [as_json(filled)])
            answer = await self._post(trip, content_type, parts)
            self._take_note(trip, answer, reusable, known)
        return answer

    def _take_note(
        self,
        trip: "_Request",
        answer: ApiAnswer | NoAnswer,
        reusable: Mapping[FileKey, FileSpot],
        known: Mapping[FileKey, str],
    ) -> None:
        body = answer.body if isinstance(answer, ApiAnswer) else None
        if body is None:
            return
        if body["ok"]:
            for key, spot in reusable.items():
                if key not in known and spot.kind is not None:
                    self._file_ids.learn(key, file_id_in(body.get("result"), spot.kind, spot.place))
        elif known and _REJECTED.search(str(body.get("description")).lower()):
            trip.rejected = True
            for key, file_id in known.items():
                self._file_ids.forget(key, file_id)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, limit_per_host=self._connections, ttl_dns_cache=DNS_CACHE
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Answers are small, but a compressed one could have any size.
                headers={"Accept-Encoding": "identity", "User-Agent": "tidegate"},
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


class _Request:
    """One request: it may leave until its deadline, and then has a timeout for its answer."""

    def __init__(
        self,
        clock: Clock,
        url: str,
        deadline: float,
        timeout: float,
        *,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> None:
        self.url = url
        self.wait_for_upload = wait_for_upload
        self.rejected = False  # Telegram rejected a remembered file_id
        self._clock = clock
        self._deadline = deadline
        self._timeout = timeout
        self._on_left, self._on_written = on_left, on_written
        self._body: RequestBody | None = None
        self._timer: asyncio.Timeout
        self._over = False

    async def bounded(self, send: Callable[[], Coroutine[Any, Any, T | NoAnswer]]) -> T | NoAnswer:
        """Run `send`. What it waits for before it writes (files, a connection) ends at the deadline."""
        seconds = self._deadline - self._clock.monotonic()
        if seconds <= 0:
            return NoAnswer(left=False, reason="late")
        self._timer = self._clock.timeout(None if seconds == math.inf else seconds)
        try:
            async with self._timer:
                return await send()
        except TimeoutError:
            left = self._body is not None and self._body.left
            return NoAnswer(left, "timeout" if left else "late")
        finally:
            self._over = True

    def load(self, content_type: str, parts: Sequence[Part]) -> RequestBody:
        self._body = RequestBody(
            parts,
            content_type,
            obstacle=self._obstacle,
            leaving=self._leaving,
            moved=self._extend,
            written=self._written,
        )
        return self._body

    def _obstacle(self) -> str | None:
        late = self._over or self._timer.expired() or self._clock.monotonic() >= self._deadline
        return "late" if late else None

    def _leaving(self) -> None:
        if self._on_left is not None:
            self._on_left()

    def _written(self) -> None:
        self._extend()
        if self._on_written is not None:
            self._on_written()

    def _extend(self) -> None:
        # aiohttp writes in its own task, which may still run when the call is over.
        if not self._over and not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time() + self._timeout)


def url_of(api_url: str, token: str, method: str) -> str:
    """Return the address of a call. It holds the token: it is for the wire alone."""
    pattern = api_url if "{token}" in api_url else f"{api_url.rstrip('/')}/bot{{token}}/{{method}}"
    return pattern.replace("{token}", token).replace("{method}", method)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body; an empty one if it is too large to be Telegram's."""
    length = response.content_length
    if length is not None and length <= LARGEST_ANSWER:
        return await response.read()
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > LARGEST_ANSWER:
            response.close()
            return b""
    return bytes(raw)


def decode_answer(answer: RawAnswer) -> Mapping[str, Any] | None:
    """Return Telegram's JSON; None for anything else."""
    try:
        body = _decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return body if isinstance(body.get("ok"), bool) else None


class _Flight(NamedTuple):
    """An upload under way."""

    began: float  # the loop's time
    landed: asyncio.Event


class FileIdCache:
    """Remembers file_ids: each file is uploaded once, and a second upload of it waits for the first.

    Bounded: the least recently used ids make room. Belongs to one event loop.
    """

    def __init__(self, most: int = MOST_FILE_IDS) -> None:
        self._most = most
        self._ids: OrderedDict[FileKey, str | None] = OrderedDict()  # None: the upload gave none
        self._flights: dict[FileKey, _Flight] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @asynccontextmanager
    async def claim(self, keys: Collection[FileKey]) -> AsyncIterator[Mapping[FileKey, str]]:
        """The known ids. The caller uploads the rest; other callers that ask for it meanwhile wait.

        No caller waits while holding a claim, so two albums that share files cannot block each other.
        A holder that leaves without `learn` passes the duty to one of the callers that wait.
        """
        while flight := next((self._flights[key] for key in keys if key in self._flights), None):
            await flight.landed.wait()
        known = {key: file_id for key in keys if (file_id := self._recall(key)) is not None}
        began = asyncio.get_running_loop().time()
        mine = {key: _Flight(began, asyncio.Event()) for key in keys if key not in self._ids}
        self._flights |= mine
        try:
            yield known
        finally:
            for key, flight in mine.items():
                del self._flights[key]
                flight.landed.set()

    def uploading(self, keys: Collection[FileKey]) -> float | None:
        """The loop's time at which an upload of one of these began; None if none is under way."""
        return max((self._flights[key].began for key in keys if key in self._flights), default=None)

    def learn(self, key: FileKey, file_id: str | None) -> None:
        """Remember an id. None: an upload gives no id, so that no caller waits for one again."""
        self._ids[key] = file_id
        self._ids.move_to_end(key)
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)

    def forget(self, key: FileKey, file_id: str) -> None:
        """Telegram rejected this id. A newer one that another caller has learned since stays."""
        if self._ids.get(key) == file_id:
            del self._ids[key]

    def _recall(self, key: FileKey) -> str | None:
        if key in self._ids:
            self._ids.move_to_end(key)
        return self._ids.get(key)


def file_id_in(result: object, kind: str, index: int) -> str | None:
    """The file_id of the given kind in a result: a message, or the `index`th of an album."""
    message = result
    if isinstance(result, list):
        message = result[index] if index < len(result) else None
    found: Any = message.get(kind) if isinstance(message, Mapping) else None
    if isinstance(found, list):  # a photo in several sizes
        found = max((size for size in found if isinstance(size, Mapping)), key=_area, default=None)
    file_id = found.get("file_id") if isinstance(found, Mapping) else None
    return file_id if isinstance(file_id, str) and file_id else None


def _area(size: Mapping[str, Any]) -> int:
    width, height = size.get("width"), size.get("height")
    return width * height if isinstance(width, int) and isinstance(height, int) else 0
