"""The routes by which messages are put. They are hot: no framework is between the server and the outbox."""

from collections import Counter
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.webhook_request import Send, WebhookRequest
from tidegate.model import BotId, Message, Ticket
from tidegate.ops.access import AccessControl, Principal, Role
from tidegate.ops.api.api_call import ApiContext, scoped_bot
from tidegate.ops.api.bodies import JSON, NDJSON, body_of, header, is_json, media_type, parts_of
from tidegate.ops.api.idempotency import IDEMPOTENCY_KEY, idempotency_key, owner_of
from tidegate.ops.api.message_stream import (
    LINES,
    MESSAGE_BYTES,
    LineAnswers,
    MessageStream,
    decode_fields,
    take_bot,
)
from tidegate.ops.api.problems import BAD_INPUT, UNSUPPORTED_TYPE, ProblemError, problem_of
from tidegate.ops.api.routes import DeclaredRoute, RouteAccess, Scope, check_access
from tidegate.tasks import BackgroundTasks

TALLY_SECONDS: Final = 10.0  # whose puts are one entry of the audit log
MOST_TALLIED: Final = 1_000  # principals and bots

PUT: Final = DeclaredRoute(
    method="POST",
    path="/api/v1/messages",
    access=RouteAccess(Role.OPERATOR, Scope.BODY),
    action="messages.put",
)
PUT_MANY: Final = DeclaredRoute(
    method="POST",
    path="/api/v1/messages/stream",
    access=RouteAccess(Role.OPERATOR, Scope.BODY),
    action="messages.put",
)


class MessagePuts:
    """Puts messages for the API. What it accepts is durable, as with `gate.send`."""

    def __init__(self, context: ApiContext, tally: "PutTally") -> None:
        self._context = context
        self._gate = context.gate
        self._tally = tally

    async def put(self, request: WebhookRequest, send: Send, principal: Principal) -> None:
        """`POST /api/v1/messages`: accept one message. Raises ProblemError."""
        check_access(principal, PUT.access)
        if not is_json(header(request, "content-type")):
            raise ProblemError(UNSUPPORTED_TYPE, f"send the message as content-type: {JSON}")
        key = _dedup_key(request, principal)
        fields = decode_fields(await body_of(self._context.bodies, request, MESSAGE_BYTES))
        core = self._gate.core
        core.check_open()
        await core.ready_to_deliver()
        bot = await self._context.bots.find(scoped_bot(principal, take_bot(fields)))
        if fields.get("dedup_key") is not None:
            key = None  # the message's own counts
        elif key is not None:
            fields["dedup_key"] = key
        message = core.producer.compose(bot, fields)
        [ticket] = await core.producer.accept([message])
        if key is not None and not ticket.fresh:
            await self._check_same(ticket, message)
        self._tally.count(principal, bot, 1)
        await _send_json(send, 202, {"id": ticket.id, "fresh": ticket.fresh})

    async def _check_same(self, ticket: Ticket, message: Message) -> None:
        """Raise ProblemError if the message that has the key says something else, as far as it is known."""
        record = await self._gate.outbox.find(ticket.id)
        if record is None or not record.message.method:  # forgotten, or it cannot be decoded
            return
        first = record.message
        if (first.method, first.chat_id, first.params) != (message.method, message.chat_id, message.params):
            raise ProblemError(BAD_INPUT, "this Idempotency-Key was used for another message: use a new one")

    async def put_many(self, request: WebhookRequest, send: Send, principal: Principal) -> None:
        """`POST /api/v1/messages/stream`: accept a message in each line. Raises ProblemError."""
        check_access(principal, PUT_MANY.access)
        if media_type(header(request, "content-type")) not in NDJSON:
            text = f"send one JSON object in each line, as content-type: {LINES}"
            raise ProblemError(UNSUPPORTED_TYPE, text)
        core = self._gate.core
        core.check_open()
        await core.ready_to_deliver()
        answers = LineAnswers(send, self._context) if LINES in header(request, "accept") else None
        stream = MessageStream(self._context, principal, _dedup_key(request, principal), answers)
        with self._context.streams.hold():
            try:
                await self._run(stream, answers, request)
            finally:
                for bot, count in stream.accepted.items():
                    self._tally.count(principal, bot, count)
        if answers is None:
            await _send_json(send, 200, stream.checked_summary())

    async def _run(self, stream: MessageStream, answers: LineAnswers | None, request: WebhookRequest) -> None:
        try:
            try:
                await stream.run(parts_of(request, self._gate.clock))
            finally:
                await stream.end_put()
        except Exception as error:
            problem = stream.interrupted(problem_of(error))
            if answers is None or not answers.has_begun:
                raise problem from error
            await answers.end(problem.content())
        else:
            if answers is not None:
                await answers.end(stream.summary())


class PutTally:
    """Writes puts to the audit log: one entry for what a principal has put for a bot within ten seconds.

    The messages themselves are in the outbox and in history. A process that is killed loses the last entry.
    """

    def __init__(self, access: AccessControl, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._counts = Counter[tuple[Principal, BotId]]()
        self._tasks = BackgroundTasks()

    def count(self, principal: Principal, bot: BotId, messages: int) -> None:
        if not self._counts:
            self._tasks.start(self._write_later(), "the audit of messages")
        self._counts[principal, bot] += messages
        if len(self._counts) > MOST_TALLIED:
            self._tasks.start(self._write(), "the audit of messages")

    async def close(self) -> None:
        await self._tasks.stop()
        await self._write()

    async def _write_later(self) -> None:
        await self._clock.sleep(TALLY_SECONDS)
        await self._write()

    async def _write(self) -> None:
        counts, self._counts = self._counts, Counter()
        for (principal, bot), messages in counts.items():
            await self._access.note(principal, PUT.action or "", bot=bot, detail=f"{messages} messages")


def _dedup_key(request: WebhookRequest, principal: Principal) -> str | None:
    """Return the dedup key that an Idempotency-Key becomes. Those of others are others."""
    given = request.headers.get(IDEMPOTENCY_KEY.encode())
    key = None if given is None else idempotency_key(given.decode("latin-1"))
    return None if key is None else f"api:{owner_of(principal)}:{key}"


async def _send_json(send: Send, status: int, content: object) -> None:
    body = msgspec.json.encode(content)
    headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
