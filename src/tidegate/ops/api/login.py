"""Sessions of people in a browser: a token or the code of a one-time link becomes a cookie.

The cookie is out of reach of scripts and of other sites (HttpOnly, SameSite=Strict). Unsafe requests with it
need the CSRF token of the session, too.
"""

from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from tidegate.inbound.webhook_request import BodyReader, Scope, Send, WebhookRequest
from tidegate.ops.access import AccessControl, NewSession, Principal
from tidegate.ops.api.bodies import JSON, body_of, header, is_json, media_type
from tidegate.ops.api.problems import (
    BAD_INPUT,
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    TOO_MANY,
    UNAUTHENTICATED,
    UNSUPPORTED_TYPE,
    ProblemError,
)
from tidegate.ops.dashboard.page_files import PAGE_HEADERS, render

COOKIE: Final = "tidegate_session"
CSRF_HEADER: Final = "x-csrf-token"
FORM: Final = "application/x-www-form-urlencoded"
LOGIN_BYTES: Final = 4_096  # of a body: a token has 46 characters
LONGEST_AGENT: Final = 200  # characters
LOCALHOST: Final = frozenset({"127.0.0.1", "::1"})
_ADDRESS: Final = "/?&=%+:@,~-._"  # what an address may hold as it is


class PlainResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes = b""

    async def send(self, send: Send) -> None:
        headers = {**self.headers, "content-length": str(len(self.body))}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body})


class LoginPages:
    """`/login`, which anybody may use."""

    def __init__(self, access: AccessControl, bodies: BodyReader) -> None:
        self._access = access
        self._bodies = bodies

    async def answer(self, request: WebhookRequest, scope: Scope) -> PlainResponse:
        """`GET /login` shows a form, or takes the `code` of a link; `POST /login` takes a token or a code.

        A form that is refused is shown again. `next` is the page that was asked for before; who has a session
        already is led there.
        """
        query = parse_qs(scope["query_string"].decode("latin-1"))
        wanted = local_address(query.get("next", ["/"])[0])
        if request.method == "POST":
            _check_origin(request)
            fields = await self._fields(request)
            if is_json(header(request, "content-type")):
                session = await self._begin(request, fields)
                return PlainResponse(200, _json_headers(session, request, scope), _session_json(session))
            return await self._enter(request, scope, fields, wanted)
        if request.method not in {"GET", "HEAD"}:
            raise ProblemError(METHOD_NOT_ALLOWED, "use GET or POST", headers={"allow": "GET, HEAD, POST"})
        if "code" not in query or request.method == "HEAD":  # which only looks, as previews of links do
            cookie = cookie_of(request)
            is_known = cookie is not None and await self._access.session(cookie) is not None
            return redirect(wanted) if is_known else login_page(wanted)
        return await self._enter(request, scope, {"code": query["code"][0]}, wanted)

    async def _enter(
        self, request: WebhookRequest, scope: Scope, fields: dict[str, str], wanted: str
    ) -> PlainResponse:
        """Begin a session, and lead to the page that was asked for. A refused browser gets the form again."""
        try:
            session = await self._begin(request, fields)
        except ProblemError as problem:
            if "text/html" not in header(request, "accept"):
                raise
            return login_page(wanted, problem)
        headers = redirect(wanted).headers | {"set-cookie": _cookie(session, request, scope)}
        return PlainResponse(303, headers)

    async def _fields(self, request: WebhookRequest) -> dict[str, str]:
        kind = header(request, "content-type")
        if not is_json(kind) and media_type(kind) != FORM:
            raise ProblemError(UNSUPPORTED_TYPE, f"send a token as content-type: {JSON}, or a form")
        body = await body_of(self._bodies, request, LOGIN_BYTES)
        if not is_json(kind):
            return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
        try:
            return msgspec.json.decode(body, type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ProblemError(BAD_INPUT, 'send {"token": "tg_…"}, or {"code": "…"} of a link') from None

    async def _begin(self, request: WebhookRequest, fields: dict[str, str]) -> NewSession:
        token, code, address = fields.get("token"), fields.get("code"), request.client
        if (wait := self._access.throttle.allows(address)) > 0:
            raise ProblemError(TOO_MANY, "too many wrong tokens or codes: try again later", retry_after=wait)
        agent = header(request, "user-agent")[:LONGEST_AGENT] or None
        if token is not None:
            session = await self._access.log_in(token.strip(), address=address, agent=agent)
        elif code is not None:
            session = await self._access.log_in_by_link(code, address=address, agent=agent)
        else:
            raise ProblemError(BAD_INPUT, "send a token, or the code of a link")
        if session is None:
            self._access.throttle.failed(address)
            raise ProblemError(
                UNAUTHENTICATED,
                "the token or code is wrong, too old, or was used: make one with tidegate token create",
            )
        await self._access.note(session.principal, "session.login", detail=f"from {address}")
        return session


def _check_origin(request: WebhookRequest) -> None:
    """Raise ProblemError if a page of another site logs its visitor in, under an account of its own."""
    origin, host = header(request, "origin"), header(request, "host")
    if origin and urlsplit(origin).netloc != host:
        raise ProblemError(FORBIDDEN, "log in from a page of this address, not from another site")


def login_page(wanted: str, problem: ProblemError | None = None) -> PlainResponse:
    """Return the form, which leads to the page that was asked for."""
    action = "/login" if wanted == "/" else f"/login?next={quote(wanted)}"
    body = render("login.html", {"action": action, "problem": problem})
    status = 200 if problem is None else problem.status
    headers = PAGE_HEADERS if problem is None else problem.headers() | PAGE_HEADERS
    return PlainResponse(status, headers, body.encode())


def local_address(address: str) -> str:
    """Return an address of this server; the first page for any other, to which a link could lead away."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_local and "\\" not in address else "/"


def cookie_of(request: WebhookRequest) -> str | None:
    """Return the cookie of a session; None if there is none."""
    for part in header(request, "cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def end_cookie() -> str:
    return f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"


def _cookie(session: NewSession, request: WebhookRequest, scope: Scope) -> str:
    """It ends with the browser at the latest: the server knows until when it is good."""
    secure = "; Secure" if _is_secure(request, scope) else ""
    return f"{COOKIE}={session.cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _is_secure(request: WebhookRequest, scope: Scope) -> bool:
    """Return whether the browser speaks TLS. A proxy on this machine is believed when it says so."""
    peer = scope.get("client") or ("",)
    is_behind_proxy = peer[0] in LOCALHOST and header(request, "x-forwarded-proto") == "https"
    return scope.get("scheme") == "https" or is_behind_proxy


def _json_headers(session: NewSession, request: WebhookRequest, scope: Scope) -> dict[str, str]:
    return {
        "content-type": JSON,
        "set-cookie": _cookie(session, request, scope),
    }


def redirect(where: str) -> PlainResponse:
    """Lead to an address of this server."""
    return PlainResponse(303, {"location": quote(where, safe=_ADDRESS), "referrer-policy": "no-referrer"})


def session_json(principal: Principal) -> dict[str, Any]:
    return {"name": principal.name, "role": principal.role, "bot": principal.bot}


def _session_json(session: NewSession) -> bytes:
    known = session_json(session.principal)
    return msgspec.json.encode(known | {"csrf_token": session.csrf, "expires_at": session.expires_at})
