"""History over HTTP: listed, searched, one message, and its replies."""

import pytest

from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service, problem

HISTORY = "/api/v1/history"


async def listed(service: Service, query: str = "", path: str = HISTORY) -> list[int]:
    answer = await service.operator.get(f"{path}?{query}")
    assert answer.status == 200, answer.body
    return [item["telegram_message_id"] for item in answer.json["items"]]


async def test_history_is_listed_by_bot_chat_direction_state_and_time(service: Service) -> None:
    first = await service.put_history(created_at=100.0)
    other = await service.put_history(OTHER_BOT, created_at=200.0, chat_id="@channel")
    came = await service.put_history(direction="in", state="received", created_at=300.0)
    assert await listed(service) == [came, other, first]
    assert await listed(service, f"bot={OTHER_BOT}") == [other]
    assert await listed(service, "chat_id=@channel") == [other]
    assert await listed(service, "direction=in") == [came]
    assert await listed(service, "state=dead&state=parked") == [other, first]
    assert await listed(service, "since=150&until=250") == [other]


async def test_history_comes_page_by_page(service: Service) -> None:
    ids = [await service.put_history() for _ in range(5)]
    first = (await service.viewer.get(f"{HISTORY}?limit=3")).json
    rest = (await service.viewer.get(f"{HISTORY}?limit=3&cursor={first['next_cursor']}")).json
    found = [item["telegram_message_id"] for item in first["items"] + rest["items"]]
    assert found == ids[::-1]
    assert rest["next_cursor"] is None


async def test_an_empty_history_says_whether_it_is_recorded_at_all(service: Service) -> None:
    """With TIDEGATE_HISTORY=off, an empty list looked as if nothing had happened."""
    ticket, gate = await service.put(), service.gate
    lists = (HISTORY, f"{HISTORY}/search?text=mill")
    paths = [*lists, f"/api/v1/messages/{ticket}/history", f"/api/v1/messages/{ticket}/attempts"]
    for recording, hint in ((True, ""), (False, ": nothing is recorded, as TIDEGATE_HISTORY is off")):
        if not recording:
            gate.settings = gate.settings.model_copy(update={"tidegate_history": 0.0})
        for path in paths:
            found = (await service.operator.get(path)).json
            assert (found["items"], found["recording"]) == ([], recording), path
        for path in (f"{HISTORY}/{CHAT}/99", f"{HISTORY}/{CHAT}/99/chain"):
            refused = await service.operator.get(path)
            assert refused.json["detail"] == f"message 99 of chat {CHAT} is not known here{hint}"


async def test_words_are_searched_by_operators_alone(service: Service) -> None:
    found = await service.put_history()
    await service.put_history(text="something else")
    path = f"{HISTORY}/search"
    assert await listed(service, "text=old+mil*", path) == [found]
    assert await listed(service, f"text=mill&bot={OTHER_BOT}", path) == []
    refused = await service.viewer.get(f"{path}?text=mill")
    assert problem(refused)[:2] == (403, "forbidden"), "whether a text has a word tells the text"


async def test_a_message_is_shown_with_its_changes_and_replies(service: Service) -> None:
    first = await service.put_history(direction="in", state="received")
    second = await service.put_history(reply_to_message_id=first)
    await service.put_history(telegram_message_id=second, is_change=True, kind="editMessageText")
    third = await service.put_history(direction="in", state="received", reply_to_message_id=second)
    path = f"{HISTORY}/{CHAT}/{second}"
    shown = (await service.operator.get(path)).json["items"]
    assert [item["is_change"] for item in shown] == [False, True]
    assert shown[0]["text"] == SECRET_TEXT
    chain = (await service.viewer.get(f"{path}/chain?bot={BOT}&depth=5")).json
    assert [item["telegram_message_id"] for item in chain["above"]] == [first]
    assert [item["telegram_message_id"] for item in chain["replies"]] == [third]
    assert chain["message"]["text"] is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{HISTORY}/{CHAT}/99", 404),
        (f"{HISTORY}/{CHAT}/99/chain", 404),
        (f"{HISTORY}/nobody/1", 422),
        (f"{HISTORY}/{CHAT}/0", 422),
        (f"{HISTORY}/{CHAT}/1/chain?depth=101", 422),
        (f"{HISTORY}?state=lost", 422),
        (f"{HISTORY}?cursor=WyJoaXN0b3J5IiwieCJd", 422),
        (f"{HISTORY}/search", 422),
        (f"{HISTORY}/search?text=%2B%2B", 422),
    ],
)
async def test_what_is_not_there_or_cannot_be_meant_is_a_problem(
    service: Service, path: str, status: int
) -> None:
    assert problem(await service.operator.get(path))[0] == status
