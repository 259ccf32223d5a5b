"""Who may make calls for which bot, and that nobody is told a token."""

import asyncio

import pytest

from tidegate.access import Role
from tidegate.delivery.transport import RawAnswer
from tidegate.gateway.bot_access import REFUSED_FOR
from tidegate.sim.virtual_time import VirtualClock
from unit.gateway.gateway_caller import SECRET, TELEGRAM, TOKEN, SimulatedGateway, gateway

MESSAGE = {"chat_id": 1001, "text": "hi"}


async def access_token(
    simulated: SimulatedGateway, role: Role, bot: int | None = None, seconds: float | None = None
) -> str:
    new = await simulated.access.create_token("a bot", role, bot, seconds)  # type: ignore[arg-type]
    return f"42:{new.secret}"


async def test_a_bots_own_token_is_believed_once_telegram_knows_it(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        answers = await asyncio.gather(*(simulated.call("sendMessage", MESSAGE) for _ in range(3)))
        methods = [call.method for call in simulated.network.calls]

    assert {answer.status for answer in answers} == {200}
    assert methods.count("getMe") == 1


async def test_a_wrong_token_is_refused_as_by_telegram_and_takes_no_slot(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        wrong = [
            await simulated.call("sendMessage", MESSAGE, token="42:wrong-token-of-this-bot") for _ in range(9)
        ]
        asked = [call.method for call in simulated.network.calls]
        began = clock.monotonic()
        right = await simulated.call("sendMessage", MESSAGE)

    assert {(one.status, one.error) for one in wrong} == {(401, "Unauthorized")}
    assert asked == ["getMe", "getMe", "getMe"]  # to verify the right one, its call, to verify the wrong one
    assert (right.status, clock.monotonic() - began) == (200, 0.0)


async def test_refused_tokens_are_asked_for_again_later_and_are_bounded(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.gateway.bot_access.MOST_REFUSED", 10)
    async with gateway(clock) as simulated:

        async def asked_for(number: int) -> int:
            before = len(simulated.network.calls)
            assert (await simulated.call("getMe", token=f"{number}:wrong-token-of-no-bot")).status == 401
            return len(simulated.network.calls) - before

        first = [await asked_for(number) for number in range(100, 112)]
        soon, forgotten = await asked_for(111), await asked_for(100)
        await clock.sleep(REFUSED_FOR + 1)
        later = await asked_for(111)

    assert (set(first), soon, forgotten, later) == ({1}, 0, 1, 1)


@pytest.mark.parametrize(
    "token", ["42", "no-token", ":x", "42:", "42:a b", "4" * 30 + ":x", "42:" + "x" * 200]
)
async def test_what_cannot_be_a_token_is_not_found_as_by_telegram(clock: VirtualClock, token: str) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.call("getMe", token=token)

    assert (answer.status, answer.error) == (404, "Not Found")
    assert simulated.network.calls == []


async def test_telegram_that_cannot_be_reached_is_not_a_wrong_token(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        simulated.network.down = True
        down = await simulated.call("sendMessage", MESSAGE)
        simulated.network.down = False
        up = await simulated.call("sendMessage", MESSAGE)

    assert (down.status, up.status) == (502, 200)


async def test_only_bots_of_the_list_may_use_it(clock: VirtualClock) -> None:
    async with gateway(clock, allowed=frozenset({43})) as simulated:
        answer = await simulated.call("sendMessage", MESSAGE)

    assert answer.status == 401
    assert answer.error == "Unauthorized: bot 42 may not use this gateway: start it with --allow 42"
    assert simulated.network.calls == []


async def test_with_an_access_token_the_bots_own_never_leaves_the_gateway(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        simulated.gate.add_bot(TOKEN, api_url=TELEGRAM)
        token = await access_token(simulated, Role.OPERATOR, 42)
        sent = await simulated.call("sendMessage", MESSAGE, token=token)
        leak = b'{"ok":true,"result":{"url":"https://bot.test/%s"}}' % TOKEN.encode()
        simulated.network.answers = [RawAnswer(200, "application/json", leak)]
        info = await simulated.call("getWebhookInfo", token=token)

    assert sent.status == 200
    assert info.json["result"]["url"] == "https://bot.test/42:…"


@pytest.mark.parametrize(
    ("told", "path"),
    [
        (b"/var/lib/telegram-bot-api/%s/photos/file_0.jpg" % TOKEN.encode(), "photos/file_0.jpg"),
        (rb"\/var\/lib\/%s\/photos\/file_0.jpg" % TOKEN.encode(), "photos/file_0.jpg"),
        (b"/srv/elsewhere/file_0.jpg", "srv/elsewhere/file_0.jpg"),
        (b"photos/file_0.jpg", "photos/file_0.jpg"),
    ],
)
async def test_folders_of_the_server_are_not_told(clock: VirtualClock, told: bytes, path: str) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        answer = b'{"ok":true,"result":{"file_id":"x","file_path":"%s"}}' % told
        simulated.network.answers = [RawAnswer(200, "application/json", answer)]
        found = await simulated.call("getFile", {"file_id": "x"})

    assert found.json["result"] == {"file_id": "x", "file_path": path}
    assert (found.body == answer) == (told == path.encode())


async def test_an_access_token_has_its_role_scope_and_end(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        simulated.gate.add_bot(TOKEN, api_url=TELEGRAM)
        viewer = await simulated.call(
            "sendMessage", MESSAGE, token=await access_token(simulated, Role.VIEWER)
        )
        other = await access_token(simulated, Role.ADMIN, 43)
        foreign = await simulated.call("sendMessage", MESSAGE, token=other)
        brief = await access_token(simulated, Role.OPERATOR, 42, 60.0)
        before = await simulated.call("sendMessage", MESSAGE, token=brief)
        await clock.sleep(61.0)
        after = await simulated.call("sendMessage", MESSAGE, token=brief)
        invented = await simulated.call("sendMessage", MESSAGE, token="42:tg_" + "x" * 43)
        unknown = await simulated.call(
            "sendMessage", MESSAGE, token=(await access_token(simulated, Role.ADMIN)).replace("42:", "77:")
        )
        operator = await access_token(simulated, Role.OPERATOR, 42)
        log_out = await simulated.call("LOGOUT", {}, token=operator)

    needs = "the access token may not make calls for bot 42: that needs the role operator"
    assert (viewer.status, viewer.error) == (403, f"Forbidden: {needs}")
    assert foreign.status == 403
    assert (before.status, after.status) == (200, 401)
    assert invented.error == "Unauthorized: the access token is wrong, expired or revoked"
    assert unknown.error == "Unauthorized: bot 77 is not registered here: tidegate bot add"
    assert log_out.error == "Forbidden: logOut needs an access token of the role admin"


async def test_no_token_is_in_a_log_or_an_error(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="tidegate")
    async with gateway(clock) as simulated:
        simulated.gate.add_bot(TOKEN, api_url=TELEGRAM)
        token = await access_token(simulated, Role.OPERATOR, 42)
        answers = [
            await simulated.call("sendMessage", content=b"{", headers={"content-type": "application/json"}),
            await simulated.call("sendMessage", MESSAGE, directives="nonsense"),
            await simulated.call("sendMessage", MESSAGE, directives="queue; urgent", token=token),
            await simulated.request(f"/bot{TOKEN}"),
            await simulated.request(f"/reader/bad name/bot{TOKEN}/getMe"),
            await simulated.request(f"/file/bot{TOKEN}/../x", method="GET"),
            await simulated.request(f"/bot{TOKEN}/sendMessage", method="DELETE"),
            await simulated.call("getMe", token="43:another-secret-of-a-bot"),
            await simulated.call("no/such/method"),
        ]
        simulated.network.down = True
        answers.append(await simulated.call("sendMessage", MESSAGE))

    told = caplog.text + "".join(answer.body.decode() for answer in answers)
    assert {answer.json["ok"] for answer in answers if answer.status >= 400} == {False}
    assert all(answer.status >= 400 for answer in answers if not answer.body.startswith(b'{"ok":true'))
    for secret in (SECRET, token.partition(":")[2], "another-secret-of-a-bot"):
        assert secret not in told
    assert "X-Tidegate" in caplog.text  # it was logged at all
