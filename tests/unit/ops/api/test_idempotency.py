"""A request that is repeated with the same Idempotency-Key is done once."""

import asyncio

import pytest

from tidegate.database.idempotency import ABANDONED_AFTER, KEEP, OnceKey
from tidegate.errors import StoreAwayError
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, Service, problem

REMINDER = {"bot": BOT, "chat_id": CHAT, "text": "Hi", "at": "09:00", "every": "day", "zone": "UTC"}


async def add(service: Service, key: str | None = "k", **more: object) -> tuple[int, object, str | None]:
    headers = {} if key is None else {"idempotency_key": key}
    answer = await service.operator.post("/api/v1/reminders", REMINDER | more, **headers)
    return answer.status, answer.json.get("id"), answer.headers.get("idempotency-replayed")


async def reminders(service: Service) -> int:
    return len(await service.gate.reminders.list())


async def test_a_repeated_request_gets_the_first_answer_and_changes_nothing(service: Service) -> None:
    first, again = await add(service), await add(service)
    assert first == (201, again[1], None)
    assert again == (201, first[1], "true")
    assert await reminders(service) == 1
    assert await service.audited() == ["reminders.add"]
    await add(service, "other key")
    await add(service, None)
    assert await reminders(service) == 2, "a key with a space is refused"


async def test_a_key_belongs_to_one_request_and_one_principal(service: Service) -> None:
    await add(service)
    assert (await add(service, text="Bye"))[0] == 422
    other_path = await service.operator.post("/api/v1/bots/7000042/pause", idempotency_key="k")
    assert problem(other_path)[:2] == (422, "bad-input")
    answer = await service.admin.post("/api/v1/reminders", REMINDER, idempotency_key="k")
    assert answer.status == 201
    assert await reminders(service) == 2


async def test_a_request_that_failed_may_be_repeated(service: Service) -> None:
    assert (await add(service, every="blue moon"))[0] == 422
    assert (await add(service))[0] == 201


async def test_of_two_at_the_same_time_one_is_done(service: Service) -> None:
    found = sorted(await asyncio.gather(add(service), add(service)), key=lambda one: one[0])
    assert [status for status, _, _ in found] == [201, 409]
    assert await reminders(service) == 1


async def test_an_answer_is_kept_for_a_day(service: Service, clock: VirtualClock) -> None:
    await add(service)
    await clock.sleep(KEEP - 60)
    assert (await add(service))[2] == "true"
    await clock.sleep(61)
    assert (await add(service))[2] is None
    assert await reminders(service) == 2


async def test_a_process_that_ended_amid_a_request_does_not_keep_the_key(
    service: Service, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(key: OnceKey, status: int, body: bytes | None) -> None:
        raise StoreAwayError(f"{key} {status} {body!r}")

    with monkeypatch.context() as patch:
        patch.setattr(service.answers, "finish", never)
        assert (await add(service))[0] == 201
    assert (await add(service))[0] == 409
    await clock.sleep(ABANDONED_AFTER + 1)
    assert (await add(service))[0] == 201


async def test_without_the_database_nothing_is_done_that_should_be_done_once(service: Service) -> None:
    service.answers.away = True
    answer = await service.operator.post("/api/v1/reminders", REMINDER, idempotency_key="k")
    assert problem(answer)[:2] == (503, "unavailable")
    assert await reminders(service) == 0
    message = await service.operator.post(
        "/api/v1/messages", {"bot": BOT, "chat_id": 1, "text": "Hi"}, idempotency_key="k"
    )
    assert message.status == 202, "messages need only the outbox"


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 201])
async def test_a_key_that_cannot_be_used_is_refused(service: Service, key: str) -> None:
    for path, body in (
        ("/api/v1/reminders", REMINDER),
        ("/api/v1/messages", {"bot": BOT, "chat_id": 1, "text": "x"}),
    ):
        assert problem(await service.operator.post(path, body, idempotency_key=key))[:2] == (422, "bad-input")


async def put(service: Service, **fields: object) -> tuple[int, object]:
    body = {"bot": BOT, "chat_id": CHAT, "text": "Hi", **fields}
    answer = await service.operator.post("/api/v1/messages", body, idempotency_key="k")
    return answer.status, answer.json.get("id") or answer.json["detail"]


async def test_a_repeated_message_is_put_once(service: Service) -> None:
    first, again = await put(service), await put(service)
    assert first == again
    assert (await service.gate.stats()).waiting == 1
    own_key = await put(service, dedup_key="own")
    assert own_key != first, "the message's own key counts"
    other = await service.admin.post(
        "/api/v1/messages", {"bot": BOT, "chat_id": CHAT, "text": "Hi"}, idempotency_key="k"
    )
    assert other.json["fresh"], "keys of others are others"


async def test_a_key_of_another_message_is_refused(service: Service) -> None:
    await put(service)
    for other in ({"text": "Bye"}, {"chat_id": 2}, {"disable_notification": True}):
        status, detail = await put(service, **other)
        assert status == 422
        assert "another message" in str(detail)
    assert (await service.gate.stats()).waiting == 1
