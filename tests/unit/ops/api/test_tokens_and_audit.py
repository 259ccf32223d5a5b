"""API tokens and the audit log over HTTP."""

from api_caller import ApiCaller
from unit.ops.api.service import BOT, OTHER_BOT, Service, problem

TOKENS = "/api/v1/tokens"


async def test_a_token_is_made_shown_once_and_revoked(service: Service) -> None:
    made = await service.admin.post(
        TOKENS, {"name": "shop", "role": "viewer", "bot": BOT, "expires_in": 3600}
    )
    assert made.status == 201
    token, secret = made.json["token"], made.json["secret"]
    shop = ApiCaller(service.app, secret)
    assert (await shop.get("/api/v1/session")).json["bot"] == BOT
    listed = await service.admin.get(TOKENS)
    assert secret not in listed.body.decode()
    assert token["id"] in [item["id"] for item in listed.json["items"]]

    assert (await service.admin.call("DELETE", f"{TOKENS}/{token['id']}")).json == {"revoked": True}
    assert problem(await shop.get("/api/v1/session"))[0] == 401
    assert problem(await service.admin.call("DELETE", f"{TOKENS}/{token['id']}"))[0] == 404
    assert await service.audited() == ["token.create", "token.revoke"]


async def test_a_token_that_cannot_be_made_is_refused(service: Service) -> None:
    for body in (
        {"name": "shop", "role": "boss"},
        {"name": "", "role": "viewer"},
        {"name": "x\ny", "role": "viewer"},
        {"name": "shop", "role": "viewer", "expires_in": 0},
        {"name": "shop", "role": "viewer", "expire": 5},
    ):
        assert problem(await service.admin.post(TOKENS, body))[:2] == (422, "bad-input")


async def test_the_secret_of_a_token_is_kept_for_nobody(service: Service) -> None:
    body = {"name": "shop", "role": "viewer"}
    await service.admin.post(TOKENS, body, idempotency_key="k")
    again = await service.admin.post(TOKENS, body, idempotency_key="k")
    assert problem(again)[:2] == (409, "conflict")
    assert len([token for token in await service.access.tokens() if token.name == "shop"]) == 1


async def test_the_audit_log_says_who_has_done_what_page_by_page(service: Service) -> None:
    for bot in (BOT, OTHER_BOT):
        await service.operator.post(f"/api/v1/bots/{bot}/pause")
    await service.operator.post(f"/api/v1/bots/{BOT}/resume")
    first = (await service.admin.get("/api/v1/audit?limit=2")).json
    rest = (await service.admin.get(f"/api/v1/audit?limit=2&cursor={first['next_cursor']}")).json
    found = [(item["action"], item["bot"]) for item in first["items"] + rest["items"]]
    assert found == [("bots.resume", BOT), ("bots.pause", OTHER_BOT), ("bots.pause", BOT)]
    assert rest["next_cursor"] is None
    assert first["items"][0]["principal"] == "operator"
    by_action = (await service.admin.get(f"/api/v1/audit?action=bots.pause&bot={BOT}")).json["items"]
    assert [item["bot"] for item in by_action] == [BOT]


async def test_what_fails_is_not_in_the_audit_log(service: Service) -> None:
    await service.operator.post("/api/v1/messages/nothing/cancel")
    await service.viewer.post(f"/api/v1/bots/{BOT}/pause")
    await service.admin.post(TOKENS, {"name": "x"})
    assert await service.audited() == []
