"""Access in memory, for tests in virtual time. The contract of access stores holds for it, too."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import msgspec

from tidegate.access import (
    AccessStore,
    AuditEntry,
    LoginSession,
    NewAuditEntry,
    NewLoginSession,
    Role,
    TokenRecord,
)
from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.model import BotId

replace = msgspec.structs.replace


class MemoryAccess(AccessStore):
    """`away`: the database cannot be reached. `hangs`: it does not answer. `calls` counts the verbs.

    `seconds`: what a verb takes.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._tokens: dict[bytes, TokenRecord] = {}
        self._sessions: dict[bytes, LoginSession] = {}
        self._links: dict[bytes, tuple[float, bool]] = {}  # when it expires, and whether it was used
        self._audit: list[AuditEntry] = []
        self._last_id = 0
        self.away = False
        self.hangs = False
        self.seconds: dict[str, float] = {}
        self.calls: Counter[str] = Counter()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _reach(self, verb: str) -> None:
        self.calls[verb] += 1
        await self._clock.sleep(self.seconds.get(verb, 0.0))  # as a real one, it lets others run
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise StoreAwayError("the database cannot be reached")

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

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
    ) -> TokenRecord:
        await self._reach("add_token")
        self._tokens[digest] = TokenRecord(
            id=self._next_id(),
            name=name,
            role=role,
            bot=bot,
            prefix=prefix,
            created_at=at,
            expires_at=expires_at,
        )
        return self._tokens[digest]

    async def tokens(self) -> list[TokenRecord]:
        await self._reach("tokens")
        return list(self._tokens.values())

    async def find_token(self, digest: bytes) -> TokenRecord | None:
        found = self._tokens.get(digest)  # as it was when it was asked for
        await self._reach("find_token")
        return found

    async def revoke_token(self, token_id: int, at: float) -> bool:
        await self._reach("revoke_token")
        for digest, session in self._sessions.items():
            if session.token is not None and session.token.id == token_id:
                self._sessions[digest] = replace(session, is_active=False)
        for digest, token in self._tokens.items():
            if token.id == token_id and token.revoked_at is None:
                self._tokens[digest] = replace(token, revoked_at=at)
                return True
        return False

    async def note_uses(self, uses: Mapping[int, float]) -> None:
        await self._reach("note_uses")
        for digest, token in self._tokens.items():
            at = uses.get(token.id)
            if at is not None and (token.last_used_at is None or token.last_used_at < at):
                self._tokens[digest] = replace(token, last_used_at=at)

    async def add_session(self, digest: bytes, session: NewLoginSession, token: TokenRecord) -> LoginSession:
        await self._reach("add_session")
        return self._begin(digest, session, token)

    def _begin(self, digest: bytes, session: NewLoginSession, token: TokenRecord | None) -> LoginSession:
        fields = msgspec.structs.asdict(session)
        self._sessions[digest] = LoginSession(id=self._next_id(), token=token, is_active=True, **fields)
        return self._sessions[digest]

    async def find_session(self, digest: bytes) -> LoginSession | None:
        await self._reach("find_session")
        found = self._sessions.get(digest)
        return None if found is None else self._with_token(found)

    def _with_token(self, session: LoginSession) -> LoginSession:
        """A session with its token as it is now."""
        whose = [token for token in self._tokens.values() if session.token and token.id == session.token.id]
        return replace(session, token=whose[0]) if whose else session

    async def sessions(self, token_id: int | None, now: float) -> list[LoginSession]:
        await self._reach("sessions")
        found = [
            self._with_token(session)
            for session in self._sessions.values()
            if (session.token.id if session.token else None) == token_id
            and session.is_active
            and session.expires_at > now
        ]
        return sorted(found, key=lambda session: session.expires_at)

    async def end_session(self, digest: bytes) -> bool:
        await self._reach("end_session")
        found = self._sessions.get(digest)
        if found is None or not found.is_active:
            return False
        self._sessions[digest] = replace(found, is_active=False)
        return True

    async def add_link(self, digest: bytes, at: float, expires_at: float) -> None:  # noqa: ARG002
        await self._reach("add_link")
        self._links[digest] = (expires_at, False)

    async def use_link(self, link: bytes, digest: bytes, session: NewLoginSession) -> LoginSession | None:
        await self._reach("use_link")
        expires_at, used = self._links.get(link, (0.0, True))
        if used or expires_at <= session.created_at:
            return None
        self._links[link] = (expires_at, True)
        return self._begin(digest, session, None)

    async def add_audit(self, entry: NewAuditEntry) -> None:
        await self._reach("add_audit")
        self._audit.append(AuditEntry(id=self._next_id(), **msgspec.structs.asdict(entry)))

    async def audit(
        self, *, before_id: int | None, limit: int, action: str | None, bot: BotId | None
    ) -> list[AuditEntry]:
        await self._reach("audit")
        found = [
            entry
            for entry in reversed(self._audit)
            if (before_id is None or entry.id < before_id)
            and (action is None or entry.action == action)
            and (bot is None or entry.bot == bot)
        ]
        return found[:limit]

    async def purge(self, now: float, audit_before: float) -> int:
        await self._reach("purge")
        before = len(self._sessions) + len(self._links) + len(self._audit)
        self._sessions = {key: one for key, one in self._sessions.items() if one.expires_at > now}
        self._links = {key: one for key, one in self._links.items() if one[0] > now}
        self._audit = [entry for entry in self._audit if entry.at >= audit_before]
        return before - len(self._sessions) - len(self._links) - len(self._audit)
