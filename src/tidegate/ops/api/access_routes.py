"""Routes of access itself: the session, API tokens, and the audit log."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from tidegate.inbound.webhook_request import WebhookRequest
from tidegate.model import BotId
from tidegate.ops.access import AccessControl, Role, TokenRecord
from tidegate.ops.api.api_call import Call
from tidegate.ops.api.login import cookie_of, end_cookie
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import BotField, BotFilter, JsonBody, RowPath, Seconds
from tidegate.ops.api.problems import BAD_INPUT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope

ROUTES = RouteTable("access")
ADMIN_OF_ALL = RouteAccess(Role.ADMIN, Scope.ALL)


class SessionView(BaseModel):
    """The caller, and what it may do. `csrf_token` is for unsafe requests with a cookie."""

    name: str
    role: Role
    bot: BotField | None = Field(description="The only bot that it may see and use; null: all.")
    csrf_token: str | None = Field(description="For the header X-CSRF-Token; null with an API token.")


class TokenView(BaseModel):
    """An API token, without its secret: nobody can be shown that again."""

    id: int
    name: str
    role: Role
    bot: BotField | None
    prefix: str = Field(description="How the secret begins, to recognise it.", examples=["tg_Ab12Cd"])
    created_at: Seconds
    expires_at: Seconds | None
    revoked_at: Seconds | None
    last_used_at: Seconds | None


class TokenList(BaseModel):
    items: list[TokenView]


class NewTokenInput(JsonBody):
    """The owner of a new token, and what it is for."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "shop", "role": "operator", "bot": 42}}
    )

    name: str = Field(min_length=1, max_length=100)
    role: Role
    bot: BotField | None = Field(default=None, description="The only bot that it may see and use; null: all.")
    expires_in: float | None = Field(
        default=None, gt=0, le=10 * 366 * 86_400, description="Seconds; null: never."
    )


class TokenMade(BaseModel):
    """The secret is in this answer, and nowhere else."""

    token: TokenView
    secret: str


class TokenRevoked(BaseModel):
    revoked: bool


class AuditView(BaseModel):
    """One change: who has done what, to what."""

    id: int
    at: Seconds
    principal: str
    token_id: int | None
    action: str = Field(examples=["messages.cancel"])
    bot: BotField | None
    target: str | None
    detail: str | None


class AuditPage(ItemPage[AuditView]):
    """Changes, the newest first."""


def _view(token: TokenRecord) -> TokenView:
    return TokenView(**{name: getattr(token, name) for name in TokenView.model_fields})


@ROUTES.get("/api/v1/session", RouteAccess(Role.VIEWER, Scope.NO_BOT), summary="Who asks")
async def show_session(call: Call, request: Request) -> SessionView:
    """The role and scope of the token or session that asks."""
    cookie = cookie_of(WebhookRequest(request.scope, request.receive))
    is_session = call.principal.session_id is not None and cookie is not None
    return SessionView(
        name=call.principal.name,
        role=call.principal.role,
        bot=call.principal.bot,
        csrf_token=AccessControl.csrf_of(cookie) if is_session and cookie is not None else None,
    )


@ROUTES.change(
    "POST",
    "/logout",
    RouteAccess(Role.VIEWER, Scope.NO_BOT),
    "session.logout",
    status_code=204,
    response_class=Response,
    summary="Log out",
)
async def log_out(call: Call, request: Request) -> Response:
    """End the session of the cookie."""
    cookie = cookie_of(WebhookRequest(request.scope, request.receive))
    if call.principal.session_id is None or cookie is None:
        raise ProblemError(BAD_INPUT, "there is no session to end: a token is revoked by an admin")
    await call.access.log_out(cookie)
    return Response(status_code=204, headers={"set-cookie": end_cookie()})


@ROUTES.get("/api/v1/tokens", ADMIN_OF_ALL, summary="List API tokens")
async def list_tokens(call: Call) -> TokenList:
    """All tokens, the oldest first, also those that are revoked or have expired."""
    return TokenList(items=[_view(token) for token in await call.access.tokens()])


@ROUTES.change(
    "POST",
    "/api/v1/tokens",
    ADMIN_OF_ALL,
    "token.create",
    keeps_answer=False,
    status_code=201,
    summary="Make an API token",
)
async def create_token(call: Call, new: NewTokenInput) -> TokenMade:
    """Make a token. Its secret is in the answer, and cannot be shown again."""
    bot = None if new.bot is None else BotId(new.bot)
    made = await call.access.create_token(new.name, new.role, bot, new.expires_in)
    call.changed(bot=bot, target=made.record.id, detail=f"{new.name}, {new.role}")
    return TokenMade(token=_view(made.record), secret=made.secret)


@ROUTES.change(
    "DELETE", "/api/v1/tokens/{token_id}", ADMIN_OF_ALL, "token.revoke", summary="Revoke an API token"
)
async def revoke_token(call: Call, token_id: RowPath) -> TokenRevoked:
    """Refuse a token from now on, and end its sessions. Other processes follow within 10 s."""
    if not await call.access.revoke_token(token_id):
        raise call.not_found(f"a token {token_id} that is not revoked")
    call.changed(target=token_id)
    return TokenRevoked(revoked=True)


@ROUTES.get("/api/v1/audit", RouteAccess(Role.ADMIN, Scope.FILTER), summary="Read the audit log")
async def list_audit(
    call: Call,
    action: Annotated[str | None, Query(max_length=100, examples=["messages.cancel"])] = None,
    bot: BotFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> AuditPage:
    """Changes, the newest first."""
    before = decode_cursor("audit", cursor, int)
    found = await call.access.audit(before, limit + 1, action, call.bot_filter(bot))
    more = found[limit - 1].id if len(found) > limit else None
    items = [
        AuditView(**{name: getattr(entry, name) for name in AuditView.model_fields})
        for entry in found[:limit]
    ]
    return AuditPage(items=items, next_cursor=encode_cursor("audit", more))
