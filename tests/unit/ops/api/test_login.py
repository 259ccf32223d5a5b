"""Sessions of people: a token or a one-time link becomes a cookie, which needs its CSRF token."""

import re
from http.cookies import SimpleCookie
from urllib.parse import quote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_caller import Answer, ApiCaller
from tidegate.ops.access import SESSION_LIFETIME
from tidegate.ops.api.login import local_address, redirect
from tidegate.ops.login_throttle import LOGIN_FAILURES
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, OTHER_BOT, Service, problem

WRONG = "tg_" + "w" * 43


def anybody(service: Service) -> ApiCaller:
    return ApiCaller(service.app)


def cookie_of(answer: Answer) -> str:
    return SimpleCookie(answer.headers["set-cookie"])["tidegate_session"].value


def browser(service: Service, cookie: str, csrf: str | None = None) -> ApiCaller:
    token = {} if csrf is None else {"x-csrf-token": csrf}
    return ApiCaller(service.app, headers={"cookie": f"tidegate_session={cookie}"} | token)


async def test_a_token_begins_a_session_with_its_role_and_scope(service: Service) -> None:
    answer = await anybody(service).post("/login", {"token": await service.token("operator", OTHER_BOT)})
    assert answer.status == 200
    assert (answer.json["role"], answer.json["bot"]) == ("operator", OTHER_BOT)
    page = browser(service, cookie_of(answer), answer.json["csrf_token"])
    session = (await page.get("/api/v1/session")).json
    assert session == {name: answer.json[name] for name in ("name", "role", "bot", "csrf_token")}
    assert (await page.post("/api/v1/messages", {"chat_id": 1, "text": "Hi"})).status == 202
    assert problem(await page.get(f"/api/v1/bots/{BOT}"))[0] == 403
    assert await service.audited() == ["session.login"]


async def test_scripts_and_other_sites_do_not_get_the_cookie(service: Service) -> None:
    token = await service.token()
    plain = await anybody(service).post("/login", {"token": token})
    secure = await anybody(service).call("POST", "/login", json={"token": token}, scheme="https")
    proxied = await anybody(service).call(
        "POST", "/login", json={"token": token}, client="127.0.0.1", headers={"x-forwarded-proto": "https"}
    )
    forged = await anybody(service).call(
        "POST", "/login", json={"token": token}, headers={"x-forwarded-proto": "https"}
    )
    for answer in (plain, secure, proxied, forged):
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert "SameSite=Strict" in answer.headers["set-cookie"]
        assert answer.headers["cache-control"] == "no-store"
    is_secure = ["; Secure" in answer.headers["set-cookie"] for answer in (plain, secure, proxied, forged)]
    assert is_secure == [False, True, True, False]


async def test_a_form_logs_in_and_leads_to_the_first_page(service: Service) -> None:
    form = await anybody(service).get("/login")
    assert (form.status, form.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in form.headers["content-security-policy"]
    answer = await anybody(service).call(
        "POST",
        "/login",
        content=f"token={await service.token('viewer')}".encode(),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert (answer.status, answer.headers["location"]) == (303, "/")
    page = await browser(service, cookie_of(answer)).get("/")
    assert "<title>Now · Tidegate</title>" in page.body.decode()


async def test_the_first_page_leads_a_stranger_to_the_form(service: Service) -> None:
    for caller in (anybody(service), browser(service, "tgs_" + "w" * 43)):
        answer = await caller.get("/")
        assert (answer.status, answer.headers["location"]) == (303, "/login")


async def test_a_one_time_link_logs_an_admin_in_once(service: Service) -> None:
    code = await service.access.make_login_link()
    answer = await anybody(service).get(f"/login?code={code}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    page = browser(service, cookie_of(answer))
    assert (await page.get("/api/v1/session")).json["role"] == "admin"
    assert problem(await anybody(service).get(f"/login?code={code}"))[0] == 401
    by_body = await anybody(service).post("/login", {"code": await service.access.make_login_link()})
    assert by_body.json["name"] == "first admin"


async def test_a_look_at_a_one_time_link_does_not_use_it_up(service: Service) -> None:
    link = f"/login?code={await service.access.make_login_link()}"
    looked = await anybody(service).call("HEAD", link)
    assert (looked.status, "set-cookie" in looked.headers) == (200, False)
    assert (await anybody(service).get(link)).status == 303


async def test_who_is_logged_in_is_led_on_by_the_login_page(service: Service) -> None:
    """A link on another site comes without the cookie; the login page asks again, and then it comes."""
    answer = await anybody(service).post("/login", {"token": await service.token("viewer")})
    known = browser(service, cookie_of(answer))
    led = await known.get("/login?next=/bots%3Fx%3D1")
    assert (led.status, led.headers["location"]) == (303, "/bots?x=1")
    assert (await browser(service, "tgs_" + "w" * 43).get("/login?next=/bots")).status == 200


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nset-cookie: a=b",
        "\t//evil.example",
        " //evil.example",
        "/\x00/evil.example",
        "/\u2028/evil.example",
        "",
    ],
)
async def test_a_login_leads_to_no_other_site(service: Service, address: str) -> None:
    answer = await log_in_to(service, address)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    form = await anybody(service).get(f"/login?next={quote(address, safe='')}")
    assert 'action="/login"' in form.body.decode()


@given(address=st.text(st.characters(codec="utf-8"), max_size=30))
def test_whatever_is_asked_for_a_login_stays_on_this_site(address: str) -> None:
    location = redirect(local_address(address)).headers["location"]
    assert location.isascii()
    assert location.isprintable()
    # As browsers read it: blanks around it and control characters in it do not count, \\ is /.
    read = re.sub(r"[\x00-\x20]", "", location).replace("\\", "/")
    assert urlsplit(urljoin("https://tidegate.example/login", read)).netloc == "tidegate.example"
    assert not read.startswith("//")


async def log_in_to(service: Service, address: str) -> Answer:
    return await anybody(service).call(
        "POST",
        f"/login?next={quote(address, safe='')}",
        content=f"token={await service.token('viewer')}".encode(),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )


async def test_logging_out_ends_the_session(service: Service) -> None:
    answer = await anybody(service).post("/login", {"token": await service.token("viewer")})
    page = browser(service, cookie_of(answer), answer.json["csrf_token"])
    ended = await page.post("/logout")
    assert ended.status == 204
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert problem(await page.get("/api/v1/session"))[0] == 401
    assert await service.audited() == ["session.login", "session.logout"]


async def test_a_token_has_no_session_to_end(service: Service) -> None:
    assert problem(await service.viewer.post("/logout"))[:2] == (422, "bad-input")
    assert (await service.viewer.get("/api/v1/session")).json["csrf_token"] is None


async def test_a_session_expires(service: Service, clock: VirtualClock) -> None:
    answer = await anybody(service).post("/login", {"token": await service.token("viewer")})
    page = browser(service, cookie_of(answer))
    await clock.sleep(SESSION_LIFETIME - 60)
    assert (await page.get("/api/v1/session")).status == 200
    await clock.sleep(61)
    assert problem(await page.get("/api/v1/session"))[0] == 401


async def test_wrong_tokens_of_one_address_are_throttled(service: Service) -> None:
    for _ in range(LOGIN_FAILURES):
        assert problem(await anybody(service).post("/login", {"token": WRONG}))[0] == 401
    answer = await anybody(service).post("/login", {"token": await service.token()})
    assert problem(answer)[:2] == (429, "too-many-requests")
    assert int(answer.headers["retry-after"]) == answer.json["retry_after"] > 0
    elsewhere = await anybody(service).call(
        "POST", "/login", json={"token": await service.token()}, client="192.0.2.8"
    )
    assert elsewhere.status == 200
    assert problem(await anybody(service).get("/login?code=tgl_" + "w" * 43))[0] == 429


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 422),
        (b"[]", "application/json", 422),
        (b'{"token": 5}', "application/json", 422),
        (b"\xff", "application/json", 422),
        (b"token=x", "text/plain", 415),
        (b"", "application/x-www-form-urlencoded", 422),
        (b" " * 5000, "application/json", 413),
    ],
)
async def test_a_login_that_cannot_be_read_is_refused(
    service: Service, content: bytes, kind: str, status: int
) -> None:
    answer = await anybody(service).call("POST", "/login", content=content, headers={"content-type": kind})
    assert problem(answer)[0] == status
    assert problem(await anybody(service).call("PUT", "/login"))[:2] == (405, "method-not-allowed")


async def test_a_page_of_another_site_logs_nobody_in(service: Service) -> None:
    async def log_in(origin: str) -> int:
        headers = {"origin": origin, "host": "tidegate.example:8080"}
        body = {"token": await service.token()}
        return (await anybody(service).call("POST", "/login", json=body, headers=headers)).status

    assert await log_in("http://tidegate.example:8080") == 200
    assert await log_in("https://evil.example") == await log_in("null") == 403
