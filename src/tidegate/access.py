"""Access: roles, the principal behind a request, and the port where tokens and sessions are kept.

No secret is in any of these records. A store knows tokens, cookies and codes by their SHA-256 digests alone.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from tidegate.model import BotId

FIRST_ADMIN: Final = "first admin"  # the name of whoever has used a one-time link


class Role(StrEnum):
    """Each role may do all that the ones before it may.

    A viewer sees numbers and states, and no message texts. An operator sees texts, and sends, cancels,
    replays and pauses. An admin registers bots, changes limits and gives access.
    """

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, needed: "Role") -> bool:
        return _RANKS[self] >= _RANKS[needed]


_RANKS: Final = {role: rank for rank, role in enumerate(Role)}  # asked with every request


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The one who makes a request: an API token, or the session of a person."""

    name: str  # of the token; for the audit log
    role: Role
    bot: BotId | None = None  # the only bot that it may see and use; None: all
    token_id: int | None = None
    session_id: int | None = None  # a session by cookie: unsafe requests need its CSRF token

    def may(self, needed: Role, bot: BotId | None = None) -> bool:
        """Return whether it has the role, for this bot if one is named."""
        return self.role.includes(needed) and (self.bot is None or bot is None or self.bot == bot)


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API token as it is stored. Times are seconds since the Unix epoch."""

    id: int
    name: str
    role: Role
    bot: BotId | None = None  # its scope; None: all bots
    prefix: str  # the first characters of the secret, by which a person recognises it
    created_at: float
    expires_at: float | None = None  # None: never
    revoked_at: float | None = None
    last_used_at: float | None = None  # written once a minute at most

    def is_usable(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def principal(self) -> Principal:
        return Principal(name=self.name, role=self.role, bot=self.bot, token_id=self.id)


class NewLoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that begins."""

    created_at: float
    expires_at: float
    address: str | None = None  # of the browser, for the list of sessions
    agent: str | None = None  # likewise


class LoginSession(NewLoginSession, frozen=True, kw_only=True):
    """A stored session of a person in a browser. Its rights are those of its token now, not at the login."""

    id: int
    token: TokenRecord | None  # None: it was begun by a one-time link
    is_active: bool

    def is_usable(self, now: float) -> bool:
        has_token = self.token is None or self.token.is_usable(now)
        return self.is_active and now < self.expires_at and has_token

    @property
    def principal(self) -> Principal:
        if self.token is None:
            return Principal(name=FIRST_ADMIN, role=Role.ADMIN, session_id=self.id)
        return msgspec.structs.replace(self.token.principal, session_id=self.id)


class NewAuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change: who has done what, to what. Holds no secret and no text of a message."""

    at: float
    principal: str  # its name
    token_id: int | None = None
    action: str  # such as token.create
    bot: BotId | None = None
    target: str | None = None  # the id of what was changed
    detail: str | None = None


class AuditEntry(NewAuditEntry, frozen=True, kw_only=True):
    """A stored one. Later entries have higher ids."""

    id: int


class AccessStore(Protocol):
    """Tokens, sessions, one-time links and the audit log.

    Every verb is one transaction; StoreAwayError while the database cannot be reached.
    """

    async def open(self) -> None:
        """Open it, if it is not open."""

    async def close(self) -> None: ...

    async def add_token(
        self,
        digest: bytes,
        *,
        name: str,
        role: Role,
        bot: BotId | None,
        prefix: str,
        at: float,
        expires_at: float | None,
    ) -> TokenRecord: ...

    async def tokens(self) -> list[TokenRecord]:
        """Return all of them, the oldest first, also those that are revoked or have expired."""
        ...

    async def find_token(self, digest: bytes) -> TokenRecord | None: ...

    async def revoke_token(self, token_id: int, at: float) -> bool:
        """Revoke a token and end its sessions, in one step; return False if that was done before."""
        ...

    async def note_uses(self, uses: Mapping[int, float]) -> None:
        """Note when tokens were last used, by id. A time that is older than the one known is ignored."""

    async def add_session(
        self, digest: bytes, session: NewLoginSession, token: TokenRecord
    ) -> LoginSession: ...

    async def find_session(self, digest: bytes) -> LoginSession | None: ...

    async def sessions(self, token_id: int | None, now: float) -> list[LoginSession]:
        """Return the sessions of a token that are active and have not expired. None: those of links."""
        ...

    async def end_session(self, digest: bytes) -> bool:
        """End a session; return whether it was active."""
        ...

    async def add_link(self, digest: bytes, at: float, expires_at: float) -> None: ...

    async def use_link(self, link: bytes, digest: bytes, session: NewLoginSession) -> LoginSession | None:
        """Begin a session by a link, in one step; None if it was used or has expired.

        Of several that use one link at the same time, one gets a session.
        """
        ...

    async def add_audit(self, entry: NewAuditEntry) -> None: ...

    async def audit(
        self, *, before_id: int | None, limit: int, action: str | None, bot: BotId | None
    ) -> list[AuditEntry]:
        """Return entries, the newest first, from the one before the id `before_id` on."""
        ...

    async def purge(self, now: float, audit_before: float) -> int:
        """Delete sessions and links that have expired, and old entries of the audit log; return how many."""
        ...
