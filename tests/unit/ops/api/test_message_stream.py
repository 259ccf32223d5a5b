"""Many messages in one request: put as they arrive, bad lines told by number, memory bounded."""

import asyncio
import gzip
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_caller import Answer
from tidegate.errors import StoreAwayError
from tidegate.model import Message, Ticket
from tidegate.ops.api.bodies import MOST_STREAMS, LineBuffer
from tidegate.ops.api.message_stream import LINES_PER_PUT, MESSAGE_BYTES
from tidegate.ops.api.puts import TALLY_SECONDS
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, OTHER_BOT, Service, problem

STREAM = "/api/v1/messages/stream"
NDJSON = {"content-type": "application/x-ndjson"}


def line(chat_id: int, **fields: Any) -> bytes:  # noqa: ANN401
    return msgspec.json.encode({"bot": BOT, "chat_id": chat_id, "text": "Hi", **fields})


async def stream(service: Service, content: bytes | Iterable[bytes], **headers: str) -> Answer:
    return await service.operator.call("POST", STREAM, content=content, headers=NDJSON | headers)


async def chats(service: Service) -> list[object]:
    return [record.message.chat_id for record in await service.gate.outbox.records(limit=10_000)]


async def test_each_line_is_a_message_and_bad_ones_are_told_by_number(service: Service) -> None:
    body = b"\n".join([line(1), b"", line(0), b"nonsense", b"[1]", line(2), line(3, bot=9)])
    answer = await stream(service, body)
    assert answer.status == 200
    summary = answer.json
    assert {name: summary[name] for name in ("lines", "accepted", "repeated", "bad")} == {
        "lines": 6,
        "accepted": 2,
        "repeated": 0,
        "bad": 4,
    }
    assert [error["line"] for error in summary["errors"]] == [3, 4, 5, 7]
    assert "chat_id 0 is no chat" in summary["errors"][0]["detail"]
    assert await chats(service) == [1, 2]


async def test_if_no_line_can_be_accepted_the_request_has_failed(service: Service) -> None:
    answer = await stream(service, b"nonsense\n" + line(0))
    assert problem(answer)[:2] == (422, "bad-input")
    assert "line 1: that is not valid JSON" in answer.json["detail"]
    assert answer.json["bad"] == 2


async def test_an_empty_stream_is_no_error(service: Service) -> None:
    for body in (b"\n\n", [b"", b"\n"]):
        assert (await stream(service, body)).json["lines"] == 0


async def test_files_of_windows_begin_with_a_mark_that_is_no_part_of_a_line(service: Service) -> None:
    bom = b"\xef\xbb\xbf"
    summary = (await stream(service, bom + line(1) + b"\r\n" + bom + b"\r\n" + bom + line(2))).json
    assert (summary["accepted"], summary["bad"], summary["errors"]) == (2, 0, [])
    one = await service.operator.call(
        "POST", "/api/v1/messages", content=bom + line(3), headers={"content-type": "application/json"}
    )
    assert one.status == 202, one.body
    assert await chats(service) == [1, 2, 3]


async def test_a_compressed_body_is_said_to_be_the_trouble(service: Service) -> None:
    """It was reported as invalid JSON."""
    refused = [
        await stream(service, gzip.compress(line(1)), content_encoding="gzip"),
        await service.operator.call(
            "POST",
            "/api/v1/broadcasts",
            content=gzip.compress(b"{}"),
            headers={"content-type": "application/json", "content-encoding": "GZip"},
        ),
    ]
    for answer in refused:
        assert problem(answer)[:2] == (415, "unsupported-media-type")
        assert "send it as it is" in answer.json["detail"]
    assert (await stream(service, line(1), content_encoding="identity")).status == 200


async def test_a_text_in_another_encoding_is_said_to_be_the_trouble(service: Service) -> None:
    """A stream of a program in Latin-1 was told of a codec and a position in nothing that it had sent."""
    answer = await stream(service, line(1, text="X").replace(b"X", "Grüße".encode("latin-1")))
    assert "line 1: that is not valid JSON: a text in it is not UTF-8" in answer.json["detail"]


@given(st.lists(st.binary(max_size=9).map(lambda text: text.replace(b"\n", b""))), st.integers(1, 30))
def test_lines_are_found_however_the_body_is_cut(lines: list[bytes], size: int) -> None:
    body, buffer = b"\n".join(lines), LineBuffer()
    found = [line for at in range(0, len(body), size) for line in buffer.feed(body[at : at + size])]
    assert [*found, buffer.rest] == (lines or [b""])


async def test_many_lines_are_put_in_order_and_in_steps(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    put = service.gate.outbox.put

    async def counted(messages: list[Message]) -> list[Ticket]:
        sizes.append(len(messages))
        return await put(messages)

    monkeypatch.setattr(service.gate.outbox, "put", counted)
    count = 2 * LINES_PER_PUT + 17
    body = b"\n".join(line(chat) for chat in range(1, count + 1))
    answer = await stream(service, [body[at : at + 1000] for at in range(0, len(body), 1000)])
    assert answer.json["accepted"] == count
    assert sizes == [LINES_PER_PUT, LINES_PER_PUT, 17]
    assert await chats(service) == list(range(1, count + 1))


async def test_answers_can_be_had_line_by_line(service: Service) -> None:
    answer = await stream(service, b"\n".join([line(1), line(0), line(2)]), accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    first, bad, second, summary = answer.lines
    assert (first["line"], bad["line"], second["line"]) == (1, 2, 3)
    assert first["fresh"]
    assert "chat_id 0" in bad["detail"]
    assert summary["accepted"] == 2
    assert (await service.find(second["id"])).message.chat_id == 2


async def failing_put(service: Service, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    put, calls = service.gate.outbox.put, 0

    async def fails(messages: list[Message]) -> list[Ticket]:
        nonlocal calls
        calls += 1
        if calls > after:
            raise StoreAwayError("Redis cannot be reached")
        return await put(messages)

    monkeypatch.setattr(service.gate.outbox, "put", fails)


async def test_if_the_store_fails_the_answer_says_where_to_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failing_put(service, monkeypatch, after=1)
    body = b"\n".join(line(chat) for chat in range(1, 3 * LINES_PER_PUT))
    answer = await stream(service, body)
    assert problem(answer)[:2] == (503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    assert answer.json["accepted"] == LINES_PER_PUT
    assert answer.json["continue_from"] == LINES_PER_PUT + 1
    assert len(await chats(service)) == LINES_PER_PUT


async def test_if_the_store_fails_amid_answers_the_last_line_says_so(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failing_put(service, monkeypatch, after=1)
    body = b"\n".join(line(chat) for chat in range(1, 3 * LINES_PER_PUT))
    answer = await stream(service, body, accept="application/x-ndjson")
    assert answer.status == 200
    *told, last = answer.lines
    assert len(told) == LINES_PER_PUT
    assert (last["status"], last["continue_from"]) == (503, LINES_PER_PUT + 1)


async def test_a_line_without_end_is_refused_and_what_came_before_stays(service: Service) -> None:
    parts = [line(1) + b"\n" + b'{"text": "', *[b"x" * 100_000] * (MESSAGE_BYTES // 100_000 + 1)]
    answer = await stream(service, parts)
    assert problem(answer)[:2] == (413, "too-large")
    assert answer.json["continue_from"] == 1


async def test_a_stream_is_repeated_safely_with_the_same_key(service: Service) -> None:
    body = b"\n".join([line(1), line(2, dedup_key="own")])
    first = (await stream(service, body, idempotency_key="k")).json
    again = (await stream(service, body + b"\n" + line(3), idempotency_key="k")).json
    assert (first["accepted"], first["repeated"]) == (2, 0)
    assert (again["accepted"], again["repeated"]) == (3, 2)
    assert await chats(service) == [1, 2, 3]


async def test_a_token_of_one_bot_streams_for_that_one(service: Service) -> None:
    caller = await service.caller("operator", OTHER_BOT)
    body = b'{"chat_id": 1, "text": "Hi"}\n' + line(2)
    answer = await caller.call("POST", STREAM, content=body, headers=NDJSON)
    assert answer.json["accepted"] == 1
    assert f"for bot {OTHER_BOT} alone" in answer.json["errors"][0]["detail"]


async def test_only_some_streams_are_read_at_a_time(service: Service) -> None:
    body = [line(1) + b"\n", line(2)]
    answers = await asyncio.gather(*(stream(service, list(body)) for _ in range(MOST_STREAMS + 2)))
    assert sorted(answer.status for answer in answers) == [200] * MOST_STREAMS + [429] * 2
    refused = next(answer for answer in answers if answer.status == 429)
    assert problem(refused)[1] == "too-many-requests"
    assert refused.headers["retry-after"] == "2"
    assert (await stream(service, line(3))).status == 200


async def test_a_stream_is_of_a_type_that_has_lines(service: Service) -> None:
    answer = await service.operator.post(STREAM, {"chat_id": 1})
    assert problem(answer)[:2] == (415, "unsupported-media-type")


async def test_puts_are_one_entry_of_the_audit_log_for_ten_seconds(
    service: Service, clock: VirtualClock
) -> None:
    await stream(service, b"\n".join([line(1), line(2)]))
    await service.operator.post("/api/v1/messages", {"bot": BOT, "chat_id": 3, "text": "Hi"})
    assert await service.audited() == []
    await clock.sleep(TALLY_SECONDS + 1)
    [entry] = await service.access.audit()
    assert (entry.action, entry.principal, entry.bot) == ("messages.put", "operator", BOT)
    assert entry.detail == "3 messages"
