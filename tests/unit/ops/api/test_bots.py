"""Bots over HTTP: register, rotate, remove, pause."""

import pytest

from tidegate.model import BotId
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, Service, problem

NEW = BotId(7_000_044)
TOKEN = f"{NEW}:AAbbccddeeffgghhiijjkkllmmnnoopp"


async def test_a_bot_is_registered_gets_a_new_token_and_is_removed(service: Service) -> None:
    made = await service.admin.post("/api/v1/bots", {"token": TOKEN})
    assert (made.status, made.json) == (
        201,
        {"bot": NEW, "api_url": "https://api.telegram.org", "fresh": True},
    )
    rotated = await service.admin.call("PUT", f"/api/v1/bots/{NEW}/token", json={"token": f"{NEW}:new-token"})
    assert rotated.status == 200
    assert service.gate.core.token_of(NEW) == f"{NEW}:new-token"
    assert (await service.admin.call("DELETE", f"/api/v1/bots/{NEW}")).json == {"bot": NEW, "removed": True}
    assert problem(await service.viewer.get(f"/api/v1/bots/{NEW}"))[0] == 404
    assert await service.audited() == ["bots.register", "bots.rotate_token", "bots.remove"]


async def test_the_token_of_another_bot_is_not_taken(service: Service) -> None:
    answer = await service.admin.call("PUT", f"/api/v1/bots/{BOT}/token", json={"token": TOKEN})
    assert problem(answer)[:2] == (422, "bad-input")
    unknown = await service.admin.call("PUT", f"/api/v1/bots/{NEW}/token", json={"token": TOKEN})
    assert problem(unknown)[:2] == (404, "not-found")


@pytest.mark.parametrize(
    "body", [{"token": "secret-thing"}, {"tokens": TOKEN}, {"token": TOKEN, "api_url": "x"}]
)
async def test_a_token_that_is_refused_is_not_quoted(service: Service, body: dict[str, str]) -> None:
    answer = await service.admin.post("/api/v1/bots", body)
    assert answer.status == 422
    assert "secret-thing" not in answer.body.decode()
    assert TOKEN not in answer.body.decode()


async def test_the_password_in_the_address_of_a_bot_api_server_is_shown_to_nobody(service: Service) -> None:
    """A viewer read it in the list of bots."""
    body = {"token": TOKEN, "api_url": "http://tidegate:old-mill@10.0.0.1:8081"}
    refused = await service.admin.post("/api/v1/bots", body)
    assert problem(refused)[:2] == (422, "bad-input")
    assert "must not contain a user or a password" in refused.body.decode()

    service.gate.add_bot(TOKEN, api_url=body["api_url"])
    for path in ("/api/v1/bots", f"/api/v1/bots/{NEW}", f"/bots/{NEW}"):
        shown = await service.viewer.get(path)
        assert shown.status == 200
        assert "old-mill" not in shown.body.decode()
    rotated = await service.admin.call("PUT", f"/api/v1/bots/{NEW}/token", json={"token": f"{NEW}:new-token"})
    assert "old-mill" not in rotated.body.decode()
    [address] = [info.api_url for info in service.gate.bots() if info.id == NEW]
    assert address == body["api_url"]


async def test_bots_are_listed_with_what_waits_and_is_paused(service: Service) -> None:
    await service.put()
    await service.operator.post(f"/api/v1/bots/{BOT}/pause")
    await service.operator.post(f"/api/v1/bots/{BOT}/chats/{CHAT}/pause")
    bots = {item["bot"]: item for item in (await service.viewer.get("/api/v1/bots")).json["items"]}
    assert bots.keys() == {BOT, OTHER_BOT}
    assert (bots[BOT]["paused"], bots[BOT]["paused_chats"], bots[BOT]["waiting"]) == (True, 1, 1)
    assert not bots[OTHER_BOT]["paused"]

    await service.operator.post(f"/api/v1/bots/{BOT}/resume")
    await service.operator.post(f"/api/v1/bots/{BOT}/chats/{CHAT}/resume")
    shown = (await service.viewer.get(f"/api/v1/bots/{BOT}")).json
    assert (shown["paused"], shown["paused_chats"]) == (False, 0)
    assert await service.audited() == ["bots.pause", "chats.pause", "bots.resume", "chats.resume"]


async def test_the_numbers_of_each_bot_are_shown(service: Service, clock: VirtualClock) -> None:
    await service.put_letter(bot=OTHER_BOT)
    await service.gate.outbox.pause(BOT)
    began = clock.now()
    await service.put(priority="low")
    await service.put(priority="high", urgent=True)
    await clock.sleep(90)

    shown = (await service.viewer.get(f"/api/v1/bots/{BOT}")).json
    stats = (await service.viewer.get("/queue/stats")).json

    names = ("waiting", "high", "normal", "low", "retry", "sending", "dead", "parked", "delivered", "refused")
    assert {name: shown[name] for name in names if shown[name]} == {"waiting": 2, "high": 1, "low": 1}
    assert (shown["oldest_at"], shown["oldest_seconds"]) == (began, 90)
    assert list(stats)[:3] == ["stats", "total_queued", "total_failed"]
    assert (stats["oldest_at"], stats["oldest_seconds"]) == (began, 90)
    by_bot = {one["bot"]: one for one in stats["by_bot"]}
    assert by_bot[BOT] == {name: shown[name] for name in by_bot[BOT]}
    assert (by_bot[OTHER_BOT]["dead"], by_bot[OTHER_BOT]["oldest_at"]) == (1, None)


async def test_a_token_of_one_bot_sees_the_numbers_of_that_bot_only(service: Service) -> None:
    await service.put()
    scoped = await service.caller("viewer", bot=OTHER_BOT)

    listed = (await scoped.get("/api/v1/bots")).json["items"]

    assert [one["bot"] for one in listed] == [OTHER_BOT]
    assert problem(await scoped.get(f"/api/v1/bots/{BOT}"))[0] in {403, 404}
    assert problem(await scoped.get("/queue/stats"))[0] == 403


async def test_fields_are_refused_where_none_are_taken(service: Service) -> None:
    """Whoever named a chat in the body of a pause had paused the whole bot."""
    refused = await service.operator.post(f"/api/v1/bots/{BOT}/pause", {"chat_id": CHAT})
    assert problem(refused)[:2] == (422, "bad-input")
    assert not (await service.viewer.get(f"/api/v1/bots/{BOT}")).json["paused"]
    assert (await service.operator.post(f"/api/v1/bots/{BOT}/pause", {})).status == 200


async def test_an_unknown_bot_cannot_be_paused(service: Service) -> None:
    assert problem(await service.operator.post(f"/api/v1/bots/{NEW}/pause"))[:2] == (404, "not-found")
    assert problem(await service.operator.post(f"/api/v1/bots/{BOT}/chats/nobody/pause"))[0] == 422
