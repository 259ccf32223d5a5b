"""The clients: `TidegateClient` for threads, `AsyncTidegateClient` for asyncio: the wire is all that differs.

Every request that changes something has an Idempotency-Key of its own: it is repeated safely after a lost
connection, and when the server asks for that.
"""

import http.client
import ssl
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from tidegate.client.verbs import (
    JSON,
    ApiRequest,
    ApiResponse,
    ApiVerb,
    ApiVerbs,
    BotLimitsInfo,
    BroadcastInfo,
    Fields,
    LettersDone,
    LineChunks,
    MessageInfo,
    QueueStats,
    SendSummary,
    WhyInfo,
    added,
    pause_before,
)
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ServiceAwayError, ServiceError
from tidegate.model import ChatId
from tidegate.scrubber import hide

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

TIMEOUT: Final = 30.0  # seconds for an answer
IDLE_CONNECTIONS: Final = 8


class ApiAddress:
    """Where the API is, and the headers of every request. The token is in no text."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise BadInputError("url is the address of the API, such as http://127.0.0.1:8080")
        if parts.username or parts.password:
            raise BadInputError("url holds a name or password: give the token for itself")
        if not (token or "").strip():  # an unset variable gives None
            raise BadInputError("the token is empty: make one with tidegate token create")
        hide(token.strip())
        self.is_tls: Final = parts.scheme == "https"
        self.host: Final = parts.hostname
        self.port: Final = parts.port
        self.root: Final = parts.path.rstrip("/")
        self.url: Final = f"{parts.scheme}://{parts.netloc}{self.root}"
        self._headers = {"authorization": f"Bearer {token.strip()}", "accept": JSON}

    def headers(self, request: ApiRequest) -> dict[str, str]:
        return self._headers | request.headers

    def away(self, error: Exception) -> ServiceAwayError:
        reason = str(error) or type(error).__name__
        return ServiceAwayError(f"{self.url} cannot be reached: {reason}")


class TidegateClient:
    """A client for threads: a Celery task, a Django view. It may be shared by any number of them.

    `bot`: the number of the bot that messages are for, if the token may use several.
    """

    def __init__(self, url: str, token: str, *, bot: int | None = None, timeout: float = TIMEOUT) -> None:
        self._address = ApiAddress(url, token)
        self._verbs = ApiVerbs(bot, Clock())
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []  # appends and pops are atomic

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def send(
        self,
        chat_id: ChatId,
        text: str | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> str:
        """Put a message, and return its id. Once this has returned, it is not lost.

        `fields` as in `gate.send`: parameters as Telegram spells them, and priority, delay, dedup_key …
        With the same `idempotency_key` it is put once; each call has one of its own, if none is given. Raises
        ServiceInputError, ServiceRefusedError, or ServiceAwayError after some attempts.
        """
        return self._run(self._verbs.send({"chat_id": chat_id, "text": text, **fields}, idempotency_key))

    def send_many(self, items: Iterable[Fields], **shared: Any) -> SendSummary:  # noqa: ANN401
        """Put many messages, some thousand in a request, while they are read. `shared` fields go to each.

        A message that the API cannot use is told in the summary, and the others go on. Raises BadInputError
        at one that cannot be written as JSON, and ServiceAwayError if the API cannot be reached; what was
        accepted before stays.
        """
        summary, before, chunks = SendSummary(), 0, LineChunks()
        for chunk in _chunked(chunks, (self._verbs.line(shared, item) for item in items)):
            summary = added(summary, self._run(self._verbs.send_lines(chunk[0])), before)
            before += chunk[1]
        return summary

    def get(self, message_id: str) -> MessageInfo | None:
        """Return a message; None if it is not known, or ended some time ago."""
        return self._run(self._verbs.get(message_id))

    def why(self, message_id: str) -> WhyInfo | None:
        """Return what a message waits for; None if it is not known."""
        return self._run(self._verbs.why(message_id))

    def cancel(self, message_id: str) -> bool:
        """Take a message back; return whether it was waiting."""
        return self._run(self._verbs.cancel(message_id))

    def reprioritize(self, message_id: str, priority: str) -> bool:
        """Give a message the priority "high", "normal" or "low"; return whether it was waiting."""
        return self._run(self._verbs.reprioritize(message_id, priority))

    def broadcast(
        self,
        name: str,
        audience: Iterable[object],
        text: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> BroadcastInfo:
        """Send to everybody in a list of chats or rows; the same call again returns the broadcast that runs.

        `text` is a template for the fields of a row, such as "Hello {name}".
        """
        return self._run(self._verbs.broadcast(name, audience, {"text": text, **fields}))

    def progress(self, name: str) -> BroadcastInfo | None:
        """Return a broadcast as it is now; None if it is not known."""
        return self._run(self._verbs.progress(name))

    def stats(self) -> QueueStats:
        """Return how many messages are in which state. The token must not be of one bot."""
        return self._run(self._verbs.stats())

    def dead_letters(self, **filters: object) -> Iterator[MessageInfo]:
        """Yield dead letters, the oldest first. Filters: bot, chat_id, reason, state."""
        cursor = None
        while True:
            page = self._run(self._verbs.dead_letters(filters, cursor))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def replay(self, *ids: str, **selection: object) -> LettersDone:
        """Queue dead letters anew: by ids, or by bot, chat_id, reason, state, older_than, everything=True."""
        return self._run(self._verbs.replay({**({"ids": ids} if ids else {}), **selection}))

    def limits(self) -> list[BotLimitsInfo]:
        """Return the limits of every bot that the token may see, or of the client's."""
        return self._run(self._verbs.limits()).bots

    def set_limits(
        self,
        *,
        bot: int | None = None,
        bot_rate: str | None = None,
        chat_rate: str | None = None,
        group_rate: str | None = None,
    ) -> BotLimitsInfo:
        """Give a bot limits of its own, such as `bot_rate="25/1"`, instead of those that it had.

        What is not given is as in the settings. Needs the role operator.
        """
        rates = {"bot_rate": bot_rate, "chat_rate": chat_rate, "group_rate": group_rate}
        return self._run(self._verbs.set_limits(bot, rates))

    def reset_limits(self, *, bot: int | None = None) -> BotLimitsInfo:
        """End the limits of a bot's own: those of the settings hold again."""
        return self._run(self._verbs.reset_limits(bot))

    def open_limits(self, *, bot: int | None = None, chat_id: ChatId | None = None) -> bool:
        """End what a 429 has closed: a bot with its chats, or one chat."""
        return self._run(self._verbs.open_limits(bot, chat_id))

    def _run(self, verb: ApiVerb[T]) -> T:
        attempt = 1
        while True:
            try:
                outcome = verb.outcome(self._exchange(verb.request))
            except (OSError, http.client.HTTPException) as error:
                outcome = self._address.away(error)
            if not isinstance(outcome, ServiceError):
                return outcome
            attempt += 1
            pause = pause_before(attempt, outcome)
            if pause is None:
                return verb.recover(outcome)
            threading.Event().wait(pause)

    def _exchange(self, request: ApiRequest) -> ApiResponse:
        """Make one request. A connection that the server has closed meanwhile is replaced by a new one."""
        while self._idle:
            try:
                return self._exchange_on(self._idle.pop(), request)
            except IndexError:  # another thread was faster
                break
            except (ConnectionError, http.client.BadStatusLine):
                continue
        return self._exchange_on(self._connect(), request)

    def _exchange_on(self, connection: http.client.HTTPConnection, request: ApiRequest) -> ApiResponse:
        try:
            path = self._address.root + request.path
            connection.request(request.method, path, request.body, self._address.headers(request))
            answer = connection.getresponse()
            response = ApiResponse(answer.status, answer.read())
        except BaseException:
            connection.close()
            raise
        if answer.will_close or len(self._idle) >= IDLE_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(connection)
        return response

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._address.is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


class AsyncTidegateClient:
    """The same for asyncio. `async with` it, or await `close`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        bot: int | None = None,
        timeout: float = TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        self._address = ApiAddress(url, token)
        self._clock = clock or Clock()
        self._verbs = ApiVerbs(bot, self._clock)
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self,
        chat_id: ChatId,
        text: str | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> str:
        """Put a message, and return its id; see `TidegateClient.send`."""
        given = {"chat_id": chat_id, "text": text, **fields}
        return await self._run(self._verbs.send(given, idempotency_key))

    async def send_many(self, items: Iterable[Fields] | AsyncIterable[Fields], **shared: Any) -> SendSummary:  # noqa: ANN401
        """Put many messages, from an iterable or an async one; see `TidegateClient.send_many`."""
        summary, before, chunks = SendSummary(), 0, LineChunks()
        async for item in _each(items):
            chunk = chunks.add(self._verbs.line(shared, item))
            if chunk is not None:
                summary = added(summary, await self._run(self._verbs.send_lines(chunk[0])), before)
                before += chunk[1]
        if (chunk := chunks.rest()) is not None:
            summary = added(summary, await self._run(self._verbs.send_lines(chunk[0])), before)
        return summary

    async def get(self, message_id: str) -> MessageInfo | None:
        """Return a message; None if it is not known, or ended some time ago."""
        return await self._run(self._verbs.get(message_id))

    async def why(self, message_id: str) -> WhyInfo | None:
        """Return what a message waits for; None if it is not known."""
        return await self._run(self._verbs.why(message_id))

    async def cancel(self, message_id: str) -> bool:
        """Take a message back; return whether it was waiting."""
        return await self._run(self._verbs.cancel(message_id))

    async def reprioritize(self, message_id: str, priority: str) -> bool:
        """Give a message the priority "high", "normal" or "low"; return whether it was waiting."""
        return await self._run(self._verbs.reprioritize(message_id, priority))

    async def broadcast(
        self,
        name: str,
        audience: Iterable[object],
        text: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> BroadcastInfo:
        """Send to everybody in a list of chats or rows; see `TidegateClient.broadcast`."""
        return await self._run(self._verbs.broadcast(name, audience, {"text": text, **fields}))

    async def progress(self, name: str) -> BroadcastInfo | None:
        """Return a broadcast as it is now; None if it is not known."""
        return await self._run(self._verbs.progress(name))

    async def stats(self) -> QueueStats:
        """Return how many messages are in which state. The token must not be of one bot."""
        return await self._run(self._verbs.stats())

    async def dead_letters(self, **filters: object) -> AsyncIterator[MessageInfo]:
        """Yield dead letters, the oldest first. Filters: bot, chat_id, reason, state."""
        cursor = None
        while True:
            page = await self._run(self._verbs.dead_letters(filters, cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def replay(self, *ids: str, **selection: object) -> LettersDone:
        """Queue dead letters anew; see `TidegateClient.replay`."""
        return await self._run(self._verbs.replay({**({"ids": ids} if ids else {}), **selection}))

    async def limits(self) -> list[BotLimitsInfo]:
        """Return the limits of every bot that the token may see, or of the client's."""
        return (await self._run(self._verbs.limits())).bots

    async def set_limits(
        self,
        *,
        bot: int | None = None,
        bot_rate: str | None = None,
        chat_rate: str | None = None,
        group_rate: str | None = None,
    ) -> BotLimitsInfo:
        """Give a bot limits of its own, such as `bot_rate="25/1"`, instead of those that it had.

        What is not given is as in the settings. Needs the role operator.
        """
        rates = {"bot_rate": bot_rate, "chat_rate": chat_rate, "group_rate": group_rate}
        return await self._run(self._verbs.set_limits(bot, rates))

    async def reset_limits(self, *, bot: int | None = None) -> BotLimitsInfo:
        """End the limits of a bot's own: those of the settings hold again."""
        return await self._run(self._verbs.reset_limits(bot))

    async def open_limits(self, *, bot: int | None = None, chat_id: ChatId | None = None) -> bool:
        """End what a 429 has closed: a bot with its chats, or one chat."""
        return await self._run(self._verbs.open_limits(bot, chat_id))

    async def _run(self, verb: ApiVerb[T]) -> T:
        import aiohttp  # noqa: PLC0415  (slow to import, and the other client does without)

        attempt = 1
        while True:
            try:
                outcome = verb.outcome(await self._exchange(verb.request))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                outcome = self._address.away(error)
            if not isinstance(outcome, ServiceError):
                return outcome
            attempt += 1
            pause = pause_before(attempt, outcome)
            if pause is None:
                return verb.recover(outcome)
            await self._clock.sleep(pause)

    async def _exchange(self, request: ApiRequest) -> ApiResponse:
        import aiohttp  # noqa: PLC0415

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))
        async with self._session.request(
            request.method,
            self._address.url + request.path,
            data=request.body,
            headers=self._address.headers(request),
            allow_redirects=False,
        ) as answer:
            return ApiResponse(answer.status, await answer.read())


def _chunked(chunks: LineChunks, lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    for line in lines:
        if (chunk := chunks.add(line)) is not None:
            yield chunk
    if (chunk := chunks.rest()) is not None:
        yield chunk


async def _each(items: Iterable[Fields] | AsyncIterable[Fields]) -> AsyncIterator[Fields]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
