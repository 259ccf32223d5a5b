"""Limits over HTTP: see nominal, learned and closed ones, change those of a bot, end closures."""

import pytest

from tidegate.model import BotLimits, Rate, Refused
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, Service, problem

LIMITS = f"/api/v1/bots/{BOT}/limits"


async def refuse(service: Service, chat: int) -> None:
    outbox = service.gate.outbox
    turn = await outbox.turn(BOT, chat, "send", 1)
    await outbox.end_turn(turn, Refused(300))


async def test_limits_of_a_bot_are_set_shown_and_reset(service: Service) -> None:
    made = await service.operator.call("PUT", LIMITS, json={"bot_rate": "25/1", "group_rate": "15/60"})
    assert made.status == 200
    assert (made.json["bot_rate"], made.json["chat_rate"], made.json["group_rate"]) == (
        "25/1",
        "1/1",
        "15/60",
    )
    assert made.json["own"] == ["bot_rate", "group_rate"]
    assert await service.gate.own_limits() == {BOT: BotLimits(bot=Rate(25, 1), group=Rate(15, 60))}

    shown = (await service.viewer.get("/api/v1/limits")).json["bots"]
    assert {one["bot"]: one["bot_rate"] for one in shown} == {BOT: "25/1", OTHER_BOT: "30/1"}

    reset = await service.operator.call("DELETE", LIMITS)
    assert (reset.json["bot_rate"], reset.json["own"]) == ("30/1", [])
    assert await service.audited() == ["limits.set", "limits.reset"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "DELETE"),
        ({"bot_rate": "fast"}, "calls/seconds"),
        ({"bot_rate": "25/86400"}, "such as 25/1"),
        ({"rate": "25/1"}, "rate"),
    ],
)
async def test_limits_that_cannot_be_meant_are_refused_with_what_to_send(
    service: Service, body: dict[str, str], told: str
) -> None:
    answer = await service.operator.call("PUT", LIMITS, json=body)
    assert problem(answer)[:2] == (422, "bad-input")
    assert told in answer.body.decode()
    assert await service.gate.own_limits() == {}


async def test_closed_chats_come_in_pages_and_are_opened(service: Service) -> None:
    for chat in (CHAT, CHAT + 1, CHAT + 2):
        await refuse(service, chat)
        await service.gate.clock.sleep(2)  # else several within a window would close the bot
    first = (await service.viewer.get(f"/api/v1/limits?bot={BOT}&limit=2")).json
    second = (await service.viewer.get(f"/api/v1/limits?limit=2&cursor={first['next_cursor']}")).json
    found = [one["chat_id"] for page in (first, second) for one in page["items"]]
    assert found == [CHAT, CHAT + 1, CHAT + 2]
    assert second["next_cursor"] is None
    assert all(one["closed_until"] for one in first["items"])

    opened = await service.operator.post(f"{LIMITS}/open", {"chat_id": CHAT})
    assert opened.json == {"bot": BOT, "chat_id": CHAT, "opened": True}
    left = (await service.viewer.get("/api/v1/limits")).json["items"]
    assert [one["chat_id"] for one in left if one["closed_until"]] == [CHAT + 1, CHAT + 2]

    await service.operator.post(f"{LIMITS}/open")
    left = (await service.viewer.get("/api/v1/limits")).json["items"]
    assert [one["chat_id"] for one in left if one["closed_until"]] == []


async def test_a_token_of_one_bot_sees_the_limits_of_that_one(service: Service) -> None:
    await service.operator.call("PUT", LIMITS, json={"bot_rate": "25/1"})
    other = await service.caller("viewer", OTHER_BOT)
    assert [one["bot"] for one in (await other.get("/api/v1/limits")).json["bots"]] == [OTHER_BOT]
