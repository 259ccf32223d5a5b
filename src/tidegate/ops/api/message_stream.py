"""Many messages in one request: a JSON object in each line, put as they arrive."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.webhook_request import Send
from tidegate.model import BotId, Message, Ticket
from tidegate.ops.access import Principal
from tidegate.ops.api.api_call import ApiContext, scoped_bot
from tidegate.ops.api.bodies import LineBuffer
from tidegate.ops.api.local_files import check_local_files
from tidegate.ops.api.problems import BAD_INPUT, MALFORMED, TOO_LARGE, ProblemError
from tidegate.tasks import BackgroundTasks

MESSAGE_BYTES: Final = 1_200_000  # of one message as JSON: its parameters may have 1 MiB
LINES_PER_PUT: Final = 500
SEND_TIMEOUT: Final = 30.0  # seconds that a client may leave its answers unread
MOST_ERRORS: Final = 100  # lines whose errors are told in a summary
LINES: Final = "application/x-ndjson"
_LARGEST_BOT: Final = 2**53
_BOM: Final = b"\xef\xbb\xbf"  # what editors of Windows write before a text; also between files in one body

Batch = list[tuple[int, Message | str]]  # lines by number, each as a message, or as the error in it

_A_MESSAGE: Final = 'a message is a JSON object, such as {"chat_id": 1, "text": "Hi"}'
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class MessageStream:
    """The lines of one request, put some hundred at a time, in order. While some are put, the next are read.

    A bad line does not stop the others. If the store fails, or the body does not arrive, what was accepted
    before stays. Memory is bounded, however many lines there are.
    """

    def __init__(
        self,
        context: ApiContext,
        principal: Principal,
        key: str | None,
        answers: "LineAnswers | None" = None,
    ) -> None:
        """`key`: with the number of its line it is the dedup key of each message that has none."""
        self._clock = context.gate.clock
        self._producer = context.gate.core.producer
        self._directory = context.bots
        self._principal = principal
        self._key = key
        self._answers = answers
        self._bots: dict[int | None, BotId] = {}
        self._number = 0  # of the line that was read last
        self._batch: Batch = []
        self._tasks = BackgroundTasks()
        self._putting: asyncio.Task[list[Ticket]] | None = None
        self._put_batch: Batch = []
        self._done = 0  # the number of the last line that is accepted or known to be bad
        self.accepted = Counter[BotId]()
        self._repeated = 0
        self._bad = 0
        self._errors: list[dict[str, Any]] = []

    async def run(self, parts: AsyncIterator[bytes]) -> None:
        """Put all lines. Raises ProblemError or TidegateError if that cannot go on."""
        buffer = LineBuffer()
        async for part in parts:
            for line in buffer.feed(part):
                await self._take(line)
            if len(buffer.rest) > MESSAGE_BYTES:
                raise ProblemError(
                    TOO_LARGE, f"line {self._number + 1} has more than {MESSAGE_BYTES:,} bytes"
                )
        await self._take(buffer.rest)
        await self._flush()
        await self._settle()

    async def end_put(self) -> None:
        """Wait for the put that is under way when `run` has failed, if there is one."""
        if self._putting is not None:
            await self._settle()

    async def _take(self, line: bytes) -> None:
        self._number += 1
        line = line.removeprefix(_BOM)
        if not line or line.isspace():
            return
        try:
            fields = decode_fields(line)
            bot = take_bot(fields)
            if bot not in self._bots:
                self._bots[bot] = await self._directory.find(scoped_bot(self._principal, bot))
            if self._key is not None and fields.get("dedup_key") is None:
                fields["dedup_key"] = f"{self._key}:{self._number}"
            self._batch.append((self._number, self._producer.compose(self._bots[bot], fields)))
        except (BadInputError, ProblemError) as error:
            self._batch.append((self._number, str(error)))
        if len(self._batch) >= LINES_PER_PUT:
            await self._flush()

    async def _flush(self) -> None:
        """Put what was read. One put at a time: what is accepted has no gaps."""
        await self._settle()
        self._put_batch, self._batch = self._batch, []
        messages = [message for _, message in self._put_batch if isinstance(message, Message)]
        if messages:
            work = self._producer.accept(messages)
            self._putting = self._tasks.start(work, "a stream of messages", awaited=True)
            await self._clock.sleep(0)  # it begins, and the next lines are read meanwhile

    async def _settle(self) -> None:
        """Wait for what is being put, and count it."""
        batch, putting = self._put_batch, self._putting
        self._put_batch, self._putting = [], None
        tickets = iter([] if putting is None else await putting)
        answers = []
        for number, entry in batch:
            if isinstance(entry, str):
                self._bad += 1
                answers.append({"line": number, "detail": entry})
                if len(self._errors) < MOST_ERRORS:
                    self._errors.append(answers[-1])
                continue
            ticket = next(tickets)
            self.accepted[entry.bot] += 1
            self._repeated += not ticket.fresh
            if self._answers is not None:
                answers.append({"line": number, "id": ticket.id, "fresh": ticket.fresh})
        if batch:
            self._done = batch[-1][0]
        if self._answers is not None:
            await self._answers.add(answers)

    def summary(self) -> dict[str, Any]:
        """Of `lines` that are not empty, those `accepted` and `bad`; of the accepted, those put before."""
        accepted = self.accepted.total()
        return {
            "lines": accepted + self._bad,
            "accepted": accepted,
            "repeated": self._repeated,
            "bad": self._bad,
            "errors": self._errors,
        }

    def checked_summary(self) -> dict[str, Any]:
        """The same. Raises ProblemError if there were lines, and not one was accepted."""
        summary = self.summary()
        if self._bad and not summary["accepted"]:
            first = self._errors[0]
            raise ProblemError(
                BAD_INPUT, f"no line was accepted; line {first['line']}: {first['detail']}", **summary
            )
        return summary

    def interrupted(self, problem: ProblemError) -> ProblemError:
        """Return the problem that ended the stream, with how far it came: where another request goes on."""
        return problem.with_members(**self.summary(), continue_from=self._done + 1)


class LineAnswers:
    """The answer to a stream in lines, sent while it is read: the client has to read meanwhile."""

    def __init__(self, send: Send, context: ApiContext) -> None:
        self._send = send
        self._clock = context.gate.clock
        self.has_begun = False

    async def add(self, answers: list[dict[str, Any]]) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = [(b"content-type", LINES.encode())]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send_part(msgspec.json.Encoder().encode_lines(answers), more=True)

    async def end(self, last: dict[str, Any]) -> None:
        """Send the last line: the summary, or the problem that ended the stream."""
        await self.add([last])
        await self._send_part(b"", more=False)

    async def _send_part(self, body: bytes, *, more: bool) -> None:
        try:
            async with self._clock.timeout(SEND_TIMEOUT):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise ProblemError(MALFORMED, f"the answers were not read for {SEND_TIMEOUT:g} s") from None


def decode_fields(body: bytes) -> dict[str, Any]:
    """Return the object of a body or a line. Raises ProblemError."""
    body = body.removeprefix(_BOM)
    if not body or body.isspace():
        raise ProblemError(MALFORMED, f"the body is empty: {_A_MESSAGE}")
    try:
        fields = _decode(body)
    except msgspec.ValidationError as error:  # no object, or a number beyond all bounds
        why = "a number is too large" if "out of range" in str(error) else _A_MESSAGE
        raise ProblemError(BAD_INPUT, why) from None
    except UnicodeDecodeError:
        raise ProblemError(MALFORMED, "that is not valid JSON: a text in it is not UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProblemError(MALFORMED, f"that is not valid JSON: {error}") from None
    check_local_files(body)
    return fields


def take_bot(fields: dict[str, Any]) -> int | None:
    """Take the number of the bot out of the fields of a message. Raises ProblemError."""
    bot = fields.pop("bot", None)
    if bot is not None and (type(bot) is not int or not 0 < bot < _LARGEST_BOT):
        raise ProblemError(BAD_INPUT, "bot is the number of a bot, which comes before the colon of its token")
    return bot
