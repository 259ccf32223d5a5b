"""Access in SQL: API tokens, sessions, one-time links, and the audit log."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Double,
    RowMapping,
    Select,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)

from tidegate.access import (
    AccessStore,
    AuditEntry,
    LoginSession,
    NewAuditEntry,
    NewLoginSession,
    Role,
    TokenRecord,
)
from tidegate.database.database import Database, SqlTransaction
from tidegate.database.schema import audit, login_links, sessions, tokens
from tidegate.model import BotId

_TOKEN_FIELDS: Final = TokenRecord.__struct_fields__
_SESSION_FIELDS: Final = ("id", "is_active", *NewLoginSession.__struct_fields__)
_AUDIT_FIELDS: Final = NewAuditEntry.__struct_fields__
_used: Final[BindParameter[float]] = bindparam("used", type_=Double())
_NOTE_USE: Final = (
    update(tokens)
    .where(
        tokens.c.id == bindparam("token"), or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at < _used)
    )
    .values(last_used_at=_used)
)


class SqlAccess(AccessStore):
    """Access in a database, which is opened with it, and closed by its owner."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

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
        row = {
            "digest": digest,
            "name": name,
            "role": str(role),
            "bot": bot,
            "prefix": prefix,
            "created_at": at,
            "expires_at": expires_at,
        }
        async with self._database.write() as transaction:
            number = await _insert(transaction, tokens, row)
        return TokenRecord(
            id=number, name=name, role=role, bot=bot, prefix=prefix, created_at=at, expires_at=expires_at
        )

    async def tokens(self) -> list[TokenRecord]:
        async with self._database.read(latest=True) as transaction:
            return list(map(_token, await transaction.rows(select(tokens).order_by(tokens.c.id))))

    async def find_token(self, digest: bytes) -> TokenRecord | None:
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(select(tokens).where(tokens.c.digest == digest))
        return _token(rows[0]) if rows else None

    async def revoke_token(self, token_id: int, at: float) -> bool:
        revoke = update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        async with self._database.write() as transaction:
            revoked = await transaction.execute(revoke.values(revoked_at=at))
            await transaction.execute(_end(sessions.c.token_id == token_id))
        return revoked.rowcount > 0

    async def note_uses(self, uses: Mapping[int, float]) -> None:
        if uses:
            rows = [{"token": token, "used": at} for token, at in sorted(uses.items())]
            async with self._database.write() as transaction:
                await transaction.execute(_NOTE_USE, rows)

    async def add_session(self, digest: bytes, session: NewLoginSession, token: TokenRecord) -> LoginSession:
        async with self._database.write() as transaction:
            return await _begin(transaction, digest, session, token)

    async def find_session(self, digest: bytes) -> LoginSession | None:
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(_with_tokens(sessions.c.digest == digest))
        return _session(rows[0]) if rows else None

    async def sessions(self, token_id: int | None, now: float) -> list[LoginSession]:
        whose = sessions.c.token_id.is_(None) if token_id is None else sessions.c.token_id == token_id
        query = _with_tokens(whose, sessions.c.is_active, sessions.c.expires_at > now)
        async with self._database.read(latest=True) as transaction:
            return list(map(_session, await transaction.rows(query.order_by(sessions.c.expires_at))))

    async def end_session(self, digest: bytes) -> bool:
        async with self._database.write() as transaction:
            return (await transaction.execute(_end(sessions.c.digest == digest))).rowcount > 0

    async def add_link(self, digest: bytes, at: float, expires_at: float) -> None:
        row = {"digest": digest, "created_at": at, "expires_at": expires_at}
        async with self._database.write() as transaction:
            await transaction.execute(insert(login_links), row)

    async def use_link(self, link: bytes, digest: bytes, session: NewLoginSession) -> LoginSession | None:
        now, found = session.created_at, login_links.c
        # Whoever changes the row has the link: PostgreSQL lets others wait, and then see it as used.
        use = update(login_links).where(found.digest == link, found.used_at.is_(None), found.expires_at > now)
        async with self._database.write() as transaction:
            if not (await transaction.execute(use.values(used_at=now))).rowcount:
                return None
            return await _begin(transaction, digest, session, None)

    async def add_audit(self, entry: NewAuditEntry) -> None:
        row = {name: getattr(entry, name) for name in _AUDIT_FIELDS}
        async with self._database.write() as transaction:
            await transaction.execute(insert(audit), row)

    async def audit(
        self, *, before_id: int | None, limit: int, action: str | None, bot: BotId | None
    ) -> list[AuditEntry]:
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(audit.c.id < before_id)
        if action is not None:
            query = query.where(audit.c.action == action)
        if bot is not None:
            query = query.where(audit.c.bot == bot)
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(query)
        return [AuditEntry(**row) for row in rows]

    async def purge(self, now: float, audit_before: float) -> int:
        expired = (
            delete(sessions).where(sessions.c.expires_at <= now),
            delete(login_links).where(login_links.c.expires_at <= now),
            delete(audit).where(audit.c.at < audit_before),
        )
        async with self._database.write() as transaction:
            return sum([(await transaction.execute(query)).rowcount for query in expired])


async def _insert(transaction: SqlTransaction, table: Table, row: Mapping[str, Any]) -> int:
    """Return the id of the new row."""
    result = await transaction.execute(insert(table).values(row).returning(table.c.id))
    return int(result.scalar_one())


async def _begin(
    transaction: SqlTransaction, digest: bytes, session: NewLoginSession, token: TokenRecord | None
) -> LoginSession:
    fields = {name: getattr(session, name) for name in NewLoginSession.__struct_fields__}
    row = {"digest": digest, "token_id": None if token is None else token.id, "is_active": True}
    number = await _insert(transaction, sessions, fields | row)
    return LoginSession(id=number, token=token, is_active=True, **fields)


def _end(condition: ColumnElement[bool]) -> Update:
    return update(sessions).where(condition, sessions.c.is_active).values(is_active=False)


def _with_tokens(*conditions: ColumnElement[bool]) -> "Select[Any]":
    """Sessions beside their tokens, in one question. One whose token is not there any more is none."""
    of_token = [tokens.c[name].label(f"token_{name}") for name in _TOKEN_FIELDS]
    of_session = [sessions.c[name] for name in _SESSION_FIELDS]
    joined = sessions.outerjoin(tokens, sessions.c.token_id == tokens.c.id)
    is_whole = or_(sessions.c.token_id.is_(None), tokens.c.id.is_not(None))
    return select(*of_session, *of_token).select_from(joined).where(*conditions, is_whole)


def _token(row: RowMapping | Mapping[str, Any]) -> TokenRecord:
    fields = {name: row[name] for name in _TOKEN_FIELDS}
    return TokenRecord(**fields | {"role": Role(fields["role"])})


def _session(row: RowMapping) -> LoginSession:
    fields = {name: row[name] for name in _SESSION_FIELDS}
    of_token = {name: row[f"token_{name}"] for name in _TOKEN_FIELDS}
    return LoginSession(**fields, token=None if of_token["id"] is None else _token(of_token))
