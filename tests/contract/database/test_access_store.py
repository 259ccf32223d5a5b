"""Access on every kind of store: in a SQLite file, in PostgreSQL, and the tests' own."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from memory_access import MemoryAccess
from tidegate.access import AccessStore, LoginSession, NewAuditEntry, NewLoginSession, Role, TokenRecord
from tidegate.database.access import SqlAccess
from tidegate.database.database import Database
from tidegate.model import BotId

NOW = 1_000.0
BOT, OTHER_BOT = BotId(42), BotId(43)
LARGE_BOT = BotId(2**52)
replace = msgspec.structs.replace


@pytest.fixture
async def store(database: Database | None) -> AsyncIterator[AccessStore]:
    made = MemoryAccess() if database is None else SqlAccess(database)
    await made.open()
    yield made
    await made.close()


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


async def add_token(store: AccessStore, number: int = 1, **fields: Any) -> TokenRecord:  # noqa: ANN401
    known = {"name": "ci", "role": Role.VIEWER, "bot": None, "prefix": "tg_Ab3dE9", "expires_at": None}
    return await store.add_token(digest(number), at=NOW, **known | fields)


def session(**fields: Any) -> NewLoginSession:  # noqa: ANN401
    return NewLoginSession(**{"created_at": NOW, "expires_at": NOW + 100.0, **fields})


async def log_in(store: AccessStore, number: int, token: TokenRecord, **fields: Any) -> LoginSession:  # noqa: ANN401
    return await store.add_session(digest(number), session(**fields), token)


async def test_a_token_is_found_by_its_digest_as_it_was_added(store: AccessStore) -> None:
    plain = await add_token(store, 1)
    full = await add_token(
        store, 2, name="Grafana ä", role=Role.ADMIN, bot=LARGE_BOT, prefix="tg_xy", expires_at=NOW + 0.5
    )

    assert (plain.name, plain.role, plain.bot, plain.created_at) == ("ci", Role.VIEWER, None, NOW)
    assert (full.role, full.bot, full.expires_at) == (Role.ADMIN, LARGE_BOT, NOW + 0.5)
    assert [await store.find_token(digest(number)) for number in (1, 2, 3)] == [plain, full, None]
    assert await store.tokens() == [plain, full]


async def test_a_token_is_revoked_once_and_its_sessions_end(store: AccessStore) -> None:
    token, other = await add_token(store, 1), await add_token(store, 2)
    await log_in(store, 11, token)
    await log_in(store, 12, other)

    assert await store.revoke_token(token.id, NOW + 5.0)
    assert not await store.revoke_token(token.id, NOW + 6.0)
    assert not await store.revoke_token(999, NOW)

    assert await store.find_token(digest(1)) == replace(token, revoked_at=NOW + 5.0)
    ended, going_on = await store.find_session(digest(11)), await store.find_session(digest(12))
    assert ended is not None
    assert going_on is not None
    assert (ended.is_active, going_on.is_active) == (False, True)
    assert await store.find_token(digest(2)) == other


async def test_the_last_use_never_goes_back(store: AccessStore) -> None:
    token, other = await add_token(store, 1), await add_token(store, 2)
    await store.note_uses({})
    await store.note_uses({token.id: NOW + 9.0, 999: NOW})
    await store.note_uses({token.id: NOW + 5.0})  # of a process that is slower

    assert [one.last_used_at for one in await store.tokens()] == [NOW + 9.0, None]
    assert await store.find_token(digest(2)) == other


async def test_a_session_is_found_with_its_token_as_it_is_now(store: AccessStore) -> None:
    token = await add_token(store)
    begun = await log_in(store, 11, token, address="2001:db8::1", agent="Firefox")
    await store.note_uses({token.id: NOW + 1.0})

    assert (begun.token, begun.is_active, begun.expires_at) == (token, True, NOW + 100.0)
    found = await store.find_session(digest(11))
    assert found == replace(begun, token=replace(token, last_used_at=NOW + 1.0))
    assert (begun.address, begun.agent) == ("2001:db8::1", "Firefox")
    assert await store.find_session(digest(12)) is None


async def test_a_session_ends_once(store: AccessStore) -> None:
    await log_in(store, 11, await add_token(store))

    assert await store.end_session(digest(11))
    assert not await store.end_session(digest(11))
    assert not await store.end_session(digest(12))
    found = await store.find_session(digest(11))
    assert found is not None
    assert not found.is_active


async def test_the_active_sessions_of_a_token_are_listed(store: AccessStore) -> None:
    token, other = await add_token(store, 1), await add_token(store, 2)
    later = await log_in(store, 11, token, expires_at=NOW + 200.0)
    sooner = await log_in(store, 12, token)
    await log_in(store, 13, token, expires_at=NOW + 10.0)
    await log_in(store, 14, other)
    await log_in(store, 15, token)
    await store.end_session(digest(15))
    await store.add_link(digest(21), NOW, NOW + 600.0)
    by_link = await store.use_link(digest(21), digest(16), session())

    assert await store.sessions(token.id, NOW + 10.0) == [sooner, later]
    assert await store.sessions(None, NOW + 10.0) == [by_link]
    assert await store.sessions(999, NOW) == []


@pytest.mark.parametrize("kind", ["file", "postgres"], indirect=True)
async def test_a_session_whose_token_was_deleted_is_nobodys(
    store: AccessStore, database: Database | None
) -> None:
    """It must not count as one of the first admin, which has no token either."""
    assert database is not None
    await log_in(store, 11, await add_token(store))
    async with database.write() as transaction:
        await transaction.execute(text("DELETE FROM tidegate_tokens"))

    assert await store.find_session(digest(11)) is None


async def test_a_link_begins_one_session_of_an_admin(store: AccessStore) -> None:
    await store.add_link(digest(21), NOW, NOW + 600.0)

    begun = await store.use_link(digest(21), digest(11), session(address="127.0.0.1"))
    assert begun is not None
    assert await store.use_link(digest(21), digest(12), session()) is None
    assert await store.use_link(digest(22), digest(13), session()) is None

    assert await store.find_session(digest(11)) == begun
    assert (begun.token, begun.address) == (None, "127.0.0.1")
    assert begun.principal.role is Role.ADMIN
    assert [await store.find_session(digest(number)) for number in (12, 13)] == [None, None]


async def test_a_link_that_is_too_old_begins_none(store: AccessStore) -> None:
    await store.add_link(digest(21), NOW, NOW + 600.0)

    late = session(created_at=NOW + 600.0, expires_at=NOW + 700.0)
    assert await store.use_link(digest(21), digest(11), late) is None


async def test_of_many_that_use_a_link_at_once_one_gets_a_session(store: AccessStore) -> None:
    await store.add_link(digest(21), NOW, NOW + 600.0)

    uses = [store.use_link(digest(21), digest(100 + n), session()) for n in range(10)]
    begun = [one for one in await asyncio.gather(*uses) if one is not None]

    assert len(begun) == 1
    assert await store.sessions(None, NOW) == begun


def entry(action: str = "queue.pause", **fields: Any) -> NewAuditEntry:  # noqa: ANN401
    return NewAuditEntry(**{"at": NOW, "principal": "ci", "action": action, **fields})


async def page(store: AccessStore, **fields: Any) -> list[int]:  # noqa: ANN401
    known = {"before_id": None, "limit": 50, "action": None, "bot": None}
    return [found.id for found in await store.audit(**known | fields)]


async def test_changes_are_read_by_pages_the_newest_first(store: AccessStore) -> None:
    for number in range(7):
        await store.add_audit(entry(target=str(number), bot=BOT if number % 2 else OTHER_BOT))
    await store.add_audit(entry("token.create", token_id=5, bot=None, target="9", detail="ä, for ci"))

    everything = await store.audit(before_id=None, limit=50, action=None, bot=None)
    ids = [found.id for found in everything]
    assert ids == sorted(ids, reverse=True)
    assert [found.target for found in everything] == ["9", *map(str, range(6, -1, -1))]
    assert msgspec.structs.asdict(everything[0]) == {
        "id": ids[0],
        "at": NOW,
        "principal": "ci",
        "token_id": 5,
        "action": "token.create",
        "bot": None,
        "target": "9",
        "detail": "ä, for ci",
    }

    assert await page(store, limit=3) == ids[:3]
    assert await page(store, before_id=ids[2], limit=3) == ids[3:6]
    assert await page(store, before_id=ids[7]) == []
    assert await page(store, action="token.create") == ids[:1]
    assert await page(store, bot=BOT) == [ids[2], ids[4], ids[6]]
    assert await page(store, bot=BOT, action="queue.pause", before_id=ids[4]) == [ids[6]]
    assert await page(store, bot=BOT, action="token.create") == []


async def test_what_has_expired_is_deleted_and_nothing_else(store: AccessStore) -> None:
    token = await add_token(store, 1, expires_at=NOW + 10.0)  # tokens stay: the audit log names them
    await log_in(store, 11, token)
    kept = await log_in(store, 12, token, expires_at=NOW + 300.0)
    await store.add_link(digest(21), NOW, NOW + 50.0)
    await store.add_link(digest(22), NOW, NOW + 600.0)
    await store.add_audit(entry(at=NOW - 50.0))
    await store.add_audit(entry(at=NOW))

    assert await store.purge(NOW + 100.0, audit_before=NOW) == 3

    assert [await store.find_session(digest(number)) for number in (11, 12)] == [None, kept]
    assert await store.use_link(digest(21), digest(13), session()) is None
    assert await store.use_link(digest(22), digest(14), session()) is not None
    assert len(await page(store)) == 1
    assert await store.tokens() == [token]
    assert await store.purge(NOW + 100.0, audit_before=NOW) == 1  # the session of above
