"""Access control: API tokens, sessions of people, one-time links, and the audit log.

One object for all who ask: the HTTP API, metrics, the command line and the dashboard. Secrets are random and
shown once; the database has their SHA-256 alone. They have 256 random bits, which nobody can guess, so that
the slow hash that passwords need would protect nothing, and cost every request.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import math
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from tidegate.access import (
    FIRST_ADMIN,
    AccessStore,
    AuditEntry,
    LoginSession,
    NewAuditEntry,
    NewLoginSession,
    Principal,
    Role,
    TokenRecord,
)
from tidegate.breaker import Breaker
from tidegate.clock import Clock
from tidegate.database import make_access
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.failure import scrub
from tidegate.model import BotId
from tidegate.ops.credential_cache import LOOKUP_TIMEOUT, RETRY_AFTER, CredentialCache
from tidegate.ops.login_throttle import LoginThrottle
from tidegate.scrubber import scrub_secrets
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks

if TYPE_CHECKING:  # an extra
    from tidegate.database.database import Database

__all__ = [
    "COMMAND_LINE",
    "FIRST_ADMIN",
    "AccessControl",
    "AccessStore",
    "AuditEntry",
    "LoginSession",
    "LoginThrottle",
    "NewSession",
    "NewToken",
    "Principal",
    "Role",
    "TokenRecord",
]

log = logging.getLogger("tidegate.access")

# How secrets begin: the scrubber knows them by that.
TOKEN, LINK, COOKIE, CSRF = "tg_", "tgl_", "tgs_", "tgc_"
PUBLIC_LENGTH: Final = 6  # characters after it that are stored, and shown in lists
SESSION_LIFETIME: Final = 12 * 3600.0  # seconds from the login, whether it is used or not
LINK_LIFETIME: Final = 600.0  # seconds
KEEP_AUDIT: Final = 365 * 86_400.0  # seconds
NOTE_USES_EVERY: Final = 60.0  # seconds
PURGE_EVERY: Final = 3600.0  # seconds
AUDIT_TIMEOUT: Final = 5.0  # seconds that a request waits for its entry
CLOSE_TIMEOUT: Final = 5.0  # seconds
LONGEST_NAME: Final = 100  # characters
LONGEST_EXPIRY: Final = 10 * 366 * 86_400.0  # seconds
MOST_USES: Final = 10_000  # tokens whose last use is not written yet
MOST_AUDIT: Final = 1_000  # entries of one page
_SECRET: Final = re.compile(r"[\w-]{43}", re.ASCII)
_CSRF_PURPOSE: Final = b"the CSRF token of a session of Tidegate"

COMMAND_LINE: Final = Principal(name="command line", role=Role.ADMIN)  # whoever can open the database


class NewToken(msgspec.Struct, frozen=True):
    """A token that was just made, with its secret, which nobody can be shown again."""

    record: TokenRecord
    secret: str

    def __repr__(self) -> str:
        return f"NewToken({self.record!r})"


class NewSession(msgspec.Struct, frozen=True):
    """A session that has begun: the value of its cookie, and the CSRF token for its unsafe requests."""

    cookie: str
    csrf: str
    expires_at: float
    principal: Principal

    def __repr__(self) -> str:
        return f"NewSession({self.principal!r})"


class AccessHost(Protocol):
    """The part of the gate that access control needs: `gate.core`."""

    clock: Clock

    @property
    def database(self) -> "Database": ...


class AccessControl:
    """Decides who may do what. `async with` it in a process that serves requests: then last uses are written.

    The database is opened when it is first needed. Verbs that change something, and lists, raise
    StoreAwayError while it cannot be reached. Nothing here writes to the audit log by itself: whoever asks
    for a change notes it.
    """

    def __init__(
        self, make_store: Callable[[], AccessStore], clock: Clock, *, keep_audit: float = KEEP_AUDIT
    ) -> None:
        self._make_store = make_store
        self._clock = clock
        self._keep_audit = keep_audit
        self._store: AccessStore | None = None
        self._opening = asyncio.Lock()
        breaker = Breaker(clock, retry_after=RETRY_AFTER, probe_seconds=LOOKUP_TIMEOUT)
        self._tokens: CredentialCache[TokenRecord] = CredentialCache(self._find_token, clock, breaker)
        self._sessions: CredentialCache[LoginSession] = CredentialCache(self._find_session, clock, breaker)
        self.throttle = LoginThrottle(clock)
        self._used: dict[int, float] = {}
        self._purged_at = -math.inf  # monotonic
        self._tasks = BackgroundTasks()
        self._steps: StoreLoop | None = None

    @classmethod
    def of(cls, core: AccessHost) -> Self:
        """Return access control on the database of a gate: `AccessControl.of(gate.core)`."""
        return cls(lambda: make_access(lambda: core.database), core.clock)

    async def __aenter__(self) -> Self:
        steps = StoreLoop("times of the last use of API tokens", self._maintain, self._clock, log)
        self._tasks.supervise(steps.run, "the upkeep of access", self._clock)
        self._steps = steps
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is not written yet, if the database can be reached. It is the gate's, and stays open."""
        if self._steps is not None:
            self._steps.stop()
        with suppress(TimeoutError, TidegateError):
            async with self._clock.timeout(CLOSE_TIMEOUT):
                await self._tasks.join()  # entries of the audit log that are being written, too
                await self._write_uses()
        await self._tasks.stop()
        await self._tokens.close()
        await self._sessions.close()

    def problems(self) -> list[str]:
        """Why it does not work as it should, a line each."""
        steps = [] if self._steps is None else self._steps.problems()
        return [*steps, *self._tasks.problems()]

    async def create_token(
        self, name: str, role: Role | str, bot: BotId | None = None, expires_in: float | None = None
    ) -> NewToken:
        """Make a token; its secret is in the answer, and nowhere else. `expires_in`: seconds; None: never.

        Raises BadInputError.
        """
        name, role = _checked_name(name), _checked_role(role)
        if bot is not None and bot <= 0:
            raise BadInputError(f"{bot} is not a bot's number: give the one before the colon of its token")
        if expires_in is not None and not 0 < expires_in <= LONGEST_EXPIRY:
            raise BadInputError("a token expires after more than 0 s and at most 10 years, or never")
        secret, now = _new_secret(TOKEN), self._clock.now()
        record = await (await self._opened()).add_token(
            _hash(secret),
            name=name,
            role=role,
            bot=bot,
            prefix=secret[: len(TOKEN) + PUBLIC_LENGTH],
            at=now,
            expires_at=None if expires_in is None else now + expires_in,
        )
        return NewToken(record, secret)

    async def tokens(self) -> list[TokenRecord]:
        """Return all tokens, the oldest first, also those that are revoked or have expired."""
        return await (await self._opened()).tokens()

    async def has_tokens(self, role: Role = Role.VIEWER) -> bool:
        """Return whether there is a token with this role, or a higher one, that can be used now."""
        now = self._clock.now()
        return any(token.is_usable(now) and token.role.includes(role) for token in await self.tokens())

    async def revoke_token(self, token_id: int) -> bool:
        """Refuse a token from now on, and end its sessions; return False if it is unknown, or was revoked.

        In this process it takes effect at once, in others within 10 s, or 5 minutes if the database is away.
        """
        try:
            return await (await self._opened()).revoke_token(token_id, self._clock.now())
        finally:  # also if it is not certain that it was revoked: then the database is asked
            self._tokens.drop(lambda token: token.id == token_id)
            self._sessions.drop(lambda session: session.token is not None and session.token.id == token_id)

    async def authenticate(self, secret: str) -> Principal | None:
        """Return the one behind an API token; None if it is wrong, expired or revoked.

        Answered from the cache for 10 s. While the database is away, tokens that were checked in the last
        5 minutes are accepted; for others it raises StoreError.
        """
        digest = _digest_of(secret, TOKEN)
        return None if digest is None else self._principal(await self._tokens.find(digest))

    async def log_in(
        self, secret: str, *, address: str | None = None, agent: str | None = None
    ) -> NewSession | None:
        """Begin a session with the rights of a token; None if the token is refused.

        It ends 12 hours later, or with its token. `address` and `agent` of the browser are for the list.
        """
        digest = _digest_of(secret, TOKEN)
        token = None if digest is None else await self._find_token(digest)
        now = self._clock.now()
        if token is None or not token.is_usable(now):
            return None
        new = _new_session(now, token.expires_at, address, agent)
        cookie = _new_secret(COOKIE)
        session = await (await self._opened()).add_session(_hash(cookie), new, token)
        return _begun(cookie, session)

    async def make_login_link(self) -> str:
        """Return a code that begins the session of an admin, once, within 10 minutes, without a token."""
        code, now = _new_secret(LINK), self._clock.now()
        await (await self._opened()).add_link(_hash(code), now, now + LINK_LIFETIME)
        return code

    async def log_in_by_link(
        self, code: str, *, address: str | None = None, agent: str | None = None
    ) -> NewSession | None:
        """Begin a session as "first admin"; None if the code is wrong, too old or was used.

        Of several requests with one code, one gets a session.
        """
        link, cookie = _digest_of(code, LINK), _new_secret(COOKIE)
        if link is None:
            return None
        new = _new_session(self._clock.now(), None, address, agent)
        session = await (await self._opened()).use_link(link, _hash(cookie), new)
        return None if session is None else _begun(cookie, session)

    async def session(self, cookie: str) -> Principal | None:
        """Return the one behind a cookie, as `authenticate` does for a token."""
        digest = _digest_of(cookie, COOKIE)
        return None if digest is None else self._principal(await self._sessions.find(digest))

    async def sessions(self, token_id: int | None) -> list[LoginSession]:
        """Return the sessions of a token that have not ended. None: those that were begun by a link."""
        return await (await self._opened()).sessions(token_id, self._clock.now())

    async def log_out(self, cookie: str) -> bool:
        """End a session, as `revoke_token` does; return whether it was active."""
        digest = _digest_of(cookie, COOKIE)
        if digest is None:
            return False
        try:
            return await (await self._opened()).end_session(digest)
        finally:
            self._sessions.drop_digest(digest)

    @staticmethod
    def csrf_of(cookie: str) -> str:
        """Return the CSRF token of a session. It follows from the cookie, which other sites cannot read."""
        code = hmac.digest(cookie.encode(errors="replace"), _CSRF_PURPOSE, "sha256")
        return CSRF + base64.urlsafe_b64encode(code).rstrip(b"=").decode()

    @classmethod
    def check_csrf(cls, cookie: str, given: str | None) -> bool:
        """Return whether a request with this cookie was made by a page that knows it."""
        expected = cls.csrf_of(cookie).encode()
        return given is not None and hmac.compare_digest(expected, given.encode(errors="replace"))

    async def note(
        self,
        principal: Principal,
        action: str,
        *,
        bot: BotId | None = None,
        target: object = None,
        detail: str | None = None,
    ) -> None:
        """Write a change into the audit log: call it after the change, before the request is answered.

        Never raises for the database: the change has been made, and stands. An entry that cannot be written
        is an error in the log, with what it says. `target` is the id of what was changed; `detail` says how,
        without texts of messages. Secrets are left out, and long texts cut.
        """
        entry = NewAuditEntry(
            at=self._clock.now(),
            principal=_short(principal.name),
            token_id=principal.token_id,
            action=_short(action),
            bot=bot,
            target=None if target is None else _short(str(target)),
            detail=None if detail is None else _short(detail),
        )
        writes = self._tasks.start(self._write_entry(entry), "writes to the audit log")
        try:
            async with self._clock.timeout(AUDIT_TIMEOUT):
                await asyncio.shield(writes)
        except TimeoutError:
            log.error("the audit log takes longer than %.0f s: %s", AUDIT_TIMEOUT, _in_words(entry))  # noqa: TRY400

    async def audit(
        self,
        before_id: int | None = None,
        limit: int = 50,
        action: str | None = None,
        bot: BotId | None = None,
    ) -> list[AuditEntry]:
        """Return changes, the newest first; the next page begins before the id of the last one."""
        limit = max(1, min(limit, MOST_AUDIT))
        return await (await self._opened()).audit(before_id=before_id, limit=limit, action=action, bot=bot)

    async def _write_entry(self, entry: NewAuditEntry) -> None:
        try:
            await (await self._opened()).add_audit(entry)
        except TidegateError as error:
            log.error("the audit log misses an entry: %s: %s", _in_words(entry), error)  # noqa: TRY400

    async def _opened(self) -> AccessStore:
        async with self._opening:
            if self._store is None:
                self._store = await asyncio.to_thread(self._make_store)  # it imports a library
        await self._store.open()
        return self._store

    async def _find_token(self, digest: bytes) -> TokenRecord | None:
        return await (await self._opened()).find_token(digest)

    async def _find_session(self, digest: bytes) -> LoginSession | None:
        return await (await self._opened()).find_session(digest)

    def _principal(self, found: TokenRecord | LoginSession | None) -> Principal | None:
        now = self._clock.now()
        if found is None or not found.is_usable(now):
            return None
        principal = found.principal
        if principal.token_id is not None and len(self._used) < MOST_USES:
            self._used[principal.token_id] = now
        return principal

    async def _maintain(self) -> float:
        """Write last uses, and purge now and then; return the seconds until the next time."""
        await self._write_uses()
        monotonic, now = self._clock.monotonic(), self._clock.now()
        if monotonic - self._purged_at >= PURGE_EVERY:
            await (await self._opened()).purge(now, now - self._keep_audit)
            self._purged_at = monotonic
        return NOTE_USES_EVERY

    async def _write_uses(self) -> None:
        if not self._used:
            return
        uses, self._used = self._used, {}
        try:
            await (await self._opened()).note_uses(uses)
        except StoreError:
            self._used = uses | self._used
            raise


def _new_secret(kind: str) -> str:
    return kind + secrets.token_urlsafe(32)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _digest_of(given: str, kind: str) -> bytes | None:
    """Return the digest of a secret; None if the text cannot be one of this kind, whatever is stored."""
    if not given.startswith(kind) or not _SECRET.fullmatch(given, len(kind)):
        return None
    return _hash(given)


def _new_session(
    now: float, token_expires_at: float | None, address: str | None, agent: str | None
) -> NewLoginSession:
    return NewLoginSession(
        created_at=now,
        expires_at=min(now + SESSION_LIFETIME, math.inf if token_expires_at is None else token_expires_at),
        address=None if address is None else _short(address),
        agent=None if agent is None else _short(agent),
    )


def _begun(cookie: str, session: LoginSession) -> NewSession:
    return NewSession(cookie, AccessControl.csrf_of(cookie), session.expires_at, session.principal)


def _checked_name(name: str) -> str:
    name = name.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadInputError(
            f"the name of a token has 1 to {LONGEST_NAME} printable characters: say who uses it, such as ci"
        )
    if scrub_secrets(name) != name:
        raise BadInputError("the name of a token is shown in lists: do not write a secret into it")
    return name


def _checked_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise BadInputError(f"there is no role {role!r}: give {', '.join(Role)}") from None


def _short(text: str) -> str:
    """One line of bounded length without secrets, and without the zero bytes that PostgreSQL refuses."""
    return scrub(text.replace("\0", " "))


def _in_words(entry: NewAuditEntry) -> str:
    told = {"bot": entry.bot, "target": entry.target, "detail": entry.detail}
    about = ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)
    return f"{entry.principal}: {entry.action}" + (f" ({about})" if about else "")
