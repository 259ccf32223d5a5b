"""Pages of access: API tokens and the audit log."""

from tidegate.ops.access import Role
from tidegate.ops.api.access_routes import ADMIN_OF_ALL, list_audit, list_tokens
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard.page import Context, PageRequest, PageTable

PAGES = PageTable()
ROWS = 50


@PAGES.page("/tokens", "tokens.html", "API tokens", ADMIN_OF_ALL)
async def tokens_page(asked: PageRequest) -> Context:
    """All tokens, those that can be used first."""
    found, now = (await list_tokens(asked.call)).items, asked.call.clock.now()

    def is_usable(token: object) -> bool:
        revoked, expires = getattr(token, "revoked_at", None), getattr(token, "expires_at", None)
        return revoked is None and (expires is None or expires > now)

    found.sort(key=lambda token: (not is_usable(token), -token.created_at))
    return {"tokens": [(token, is_usable(token)) for token in found], "roles": list(Role)}


@PAGES.page("/audit", "audit.html", "Audit log", RouteAccess(Role.ADMIN, Scope.FILTER), every=5.0)
async def audit_page(asked: PageRequest) -> Context:
    """Changes, the newest first."""
    action, cursor = asked.one("action"), asked.one("cursor")
    found = await list_audit(asked.call, action, asked.number("bot"), cursor, ROWS)
    return {"entries": found.items, "next_cursor": found.next_cursor, "action": action, "cursor": cursor}
