"""Broadcasts over HTTP: begun from a list or a file, followed, paused, resumed, cancelled."""

from typing import Any

import pytest

from api_caller import Answer
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, OTHER_BOT, SECRET_TEXT, Service, problem

BROADCASTS = "/api/v1/broadcasts"
ROWS = [{"chat_id": 1, "name": "Ada"}, {"chat_id": 2, "name": "Bob"}]
SALE: dict[str, Any] = {"name": "sale", "bot": BOT, "audience": ROWS, "text": "Hello {name}"}


async def upload(
    service: Service,
    content: bytes | list[bytes],
    kind: str = "text/csv",
    query: str = "",
    name: str = "sale",
) -> Answer:
    path = f"{BROADCASTS}/{name}/upload?bot={BOT}{query}"
    return await service.operator.call("POST", path, content=content, headers={"content-type": kind})


async def texts(service: Service, clock: VirtualClock) -> list[tuple[Any, Any]]:
    await clock.sleep(5)
    found = await service.gate.outbox.records(limit=100)
    return sorted((record.message.chat_id, record.message.params["text"]) for record in found)


async def test_a_list_becomes_a_broadcast(service: Service, clock: VirtualClock) -> None:
    answer = await service.operator.post(BROADCASTS, SALE | {"expires_in": 3600, "parse_mode": "HTML"})
    assert answer.status == 201
    assert (answer.json["bot"], answer.json["name"], answer.json["total"]) == (BOT, "sale", 2)
    assert await texts(service, clock) == [(1, "Hello Ada"), (2, "Hello Bob")]
    [first, _] = await service.gate.outbox.records(limit=100)
    assert (first.message.priority, first.message.params["parse_mode"]) == ("low", "HTML")
    assert first.message.expires_at is not None
    assert await service.audited() == ["broadcasts.start"]


async def test_the_same_broadcast_again_is_the_one_that_runs_and_another_is_a_conflict(
    service: Service,
) -> None:
    await service.gate.outbox.pause(BOT)
    first, again = (
        await service.operator.post(BROADCASTS, SALE),
        await service.operator.post(BROADCASTS, SALE),
    )
    assert (first.status, again.status) == (201, 201)
    assert first.json["started_at"] == again.json["started_at"]
    other = await service.operator.post(BROADCASTS, SALE | {"text": "Bye {name}"})
    assert problem(other)[:2] == (409, "conflict")


async def test_a_bad_row_is_named_and_nothing_is_sent(service: Service) -> None:
    rows = [*ROWS, {"chat_id": "nobody", "name": "x"}, {"chat_id": 4}]
    answer = await service.operator.post(BROADCASTS, SALE | {"audience": rows})
    assert problem(answer)[:2] == (422, "bad-input")
    assert answer.json["bad"] == 2
    assert [error["line"] for error in answer.json["errors"]] == [3, 4]
    assert (await service.viewer.get(BROADCASTS)).json["items"] == []


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"chat_id,name\n1,Ada\n2,Bob\n", "text/csv; charset=utf-8"),
        (b'{"chat_id": 1, "name": "Ada"}\n{"chat_id": 2, "name": "Bob"}', "application/x-ndjson"),
        ([b"chat_id,na", b"me\n1,Ada\n2", b",Bob\n"], "text/csv"),
    ],
)
async def test_a_file_becomes_a_broadcast(
    service: Service, clock: VirtualClock, content: bytes | list[bytes], kind: str
) -> None:
    answer = await upload(service, content, kind, "&text=Hello+%7Bname%7D&priority=normal")
    assert answer.status == 201, answer.body
    assert answer.json["total"] == 2
    assert await texts(service, clock) == [(1, "Hello Ada"), (2, "Hello Bob")]
    assert await service.audited() == ["broadcasts.start"]


async def test_each_row_of_a_file_may_have_its_own_text(service: Service, clock: VirtualClock) -> None:
    assert (await upload(service, b"chat_id,text\n1,One\n2,Two\n")).status == 201
    assert await texts(service, clock) == [(1, "One"), (2, "Two")]


@pytest.mark.parametrize(
    ("content", "kind", "query", "status"),
    [
        (b"chat_id,name\n1,Ada\n", "application/json", "&text=x", 415),
        (b"", "text/csv", "&text=x", 422),
        (b"chat_id\n1\nnobody\n", "text/csv", "&text=x", 422),
        (b"name\nAda\n", "text/csv", "&text=x", 422),
        (b"chat_id\n1\n", "text/csv", "&text=Hello+%7Bname%7D", 422),
        (b"chat_id\n1\n", "text/csv", "&text=x&priority=highest", 422),
    ],
)
async def test_a_file_that_cannot_be_sent_to_is_refused(
    service: Service, content: bytes, kind: str, query: str, status: int
) -> None:
    assert problem(await upload(service, content, kind, query))[0] == status
    assert await service.audited() == []


async def test_a_broadcast_is_followed_paused_resumed_and_cancelled(
    service: Service, clock: VirtualClock
) -> None:
    name = await service.put_broadcast()
    path = f"{BROADCASTS}/{name}"
    await clock.sleep(3)
    shown = (await service.operator.get(path)).json
    assert (shown["state"], shown["total"], shown["counts"]["accepted"]) == ("running", 3, 3)
    assert (await service.operator.post(f"{path}/pause")).json["state"] == "paused"
    assert (await service.operator.post(f"{path}/resume")).json["state"] == "running"
    assert (await service.operator.post(f"{path}/cancel")).json["state"] == "cancelled"
    assert (await service.gate.stats()).waiting == 0
    assert problem(await service.operator.post(f"{path}/pause"))[:2] == (409, "conflict")
    assert await service.audited() == ["broadcasts.pause", "broadcasts.resume", "broadcasts.cancel"]


async def test_broadcasts_are_listed_page_by_page_and_without_texts_for_viewers(service: Service) -> None:
    names = [
        await service.put_broadcast(),
        await service.put_broadcast(),
        await service.put_broadcast(OTHER_BOT),
    ]
    first = (await service.viewer.get(f"{BROADCASTS}?limit=2")).json
    rest = (await service.viewer.get(f"{BROADCASTS}?limit=2&cursor={first['next_cursor']}")).json
    assert [item["name"] for item in first["items"] + rest["items"]] == names
    of_other = (await service.operator.get(f"{BROADCASTS}?bot={OTHER_BOT}")).json["items"]
    assert [item["name"] for item in of_other] == names[2:]
    assert SECRET_TEXT not in str(first)
    assert problem(await service.viewer.get(f"{BROADCASTS}/nothing"))[:2] == (404, "not-found")
