"""Access control: what is accepted, for how long, and what a database that is away changes."""

import asyncio
import logging

import pytest

from memory_access import MemoryAccess
from tidegate.access import TokenRecord
from tidegate.errors import BadInputError, ClosedError, StoreAwayError
from tidegate.model import BotId
from tidegate.ops.access import (
    AUDIT_TIMEOUT,
    LINK_LIFETIME,
    NOTE_USES_EVERY,
    PURGE_EVERY,
    SESSION_LIFETIME,
    AccessControl,
    NewSession,
    NewToken,
    Principal,
    Role,
)
from tidegate.ops.credential_cache import (
    FRESH_FOR,
    GRACE,
    LOOKUP_TIMEOUT,
    MOST_KNOWN,
    MOST_LOOKUPS,
    MOST_UNKNOWN,
    RETRY_AFTER,
)
from tidegate.sim.virtual_time import VirtualClock

BOT, OTHER_BOT = BotId(42), BotId(43)
WRONG = "tg_" + "w" * 43
ADMIN = Principal(name="boss", role=Role.ADMIN, token_id=7)


@pytest.fixture
def store(clock: VirtualClock) -> MemoryAccess:
    return MemoryAccess(clock)


@pytest.fixture
def access(store: MemoryAccess, clock: VirtualClock) -> AccessControl:
    return AccessControl(lambda: store, clock)


def other_process(store: MemoryAccess, clock: VirtualClock) -> AccessControl:
    return AccessControl(lambda: store, clock)


async def a_token(access: AccessControl, role: Role = Role.OPERATOR) -> NewToken:
    return await access.create_token("ci", role)


async def a_session(access: AccessControl) -> NewSession:
    session = await access.log_in((await a_token(access)).secret)
    assert session is not None
    return session


def guess(number: int) -> str:
    return f"tg_{number:043d}"


def test_each_role_may_do_what_those_before_it_may() -> None:
    viewer, operator, admin = (Principal(name="x", role=role) for role in Role)
    assert [viewer.may(role) for role in Role] == [True, False, False]
    assert [operator.may(role) for role in Role] == [True, True, False]
    assert [admin.may(role) for role in Role] == [True, True, True]


def test_a_scope_keeps_to_its_bot() -> None:
    scoped = Principal(name="x", role=Role.OPERATOR, bot=BOT)
    assert scoped.may(Role.VIEWER)
    assert scoped.may(Role.OPERATOR, BOT)
    assert not scoped.may(Role.VIEWER, OTHER_BOT)
    assert not scoped.may(Role.ADMIN, BOT)


async def test_a_token_is_known_by_its_secret_which_is_in_no_text(access: AccessControl) -> None:
    made = await access.create_token(" ci ", "operator", bot=BOT)

    assert made.secret.startswith("tg_")
    assert len(made.secret) == 3 + 43
    assert made.record.prefix == made.secret[:9]
    assert made.secret not in repr(made)
    assert made.secret[9:] not in f"{made} {made.record}"
    assert await access.authenticate(made.secret) == Principal(
        name="ci", role=Role.OPERATOR, bot=BOT, token_id=made.record.id
    )
    assert (await a_token(access)).secret != made.secret


@pytest.mark.parametrize(
    "wrong",
    ["", "tg_", WRONG, "tgs_" + "w" * 43, "tg_" + "w" * 500, "tg_" + "ä" * 43, "\ud83d", WRONG + "\n"],
)
async def test_a_wrong_secret_is_refused(access: AccessControl, wrong: str) -> None:
    await a_token(access)
    assert await access.authenticate(wrong) is None
    assert await access.session(wrong) is None
    assert await access.log_in(wrong) is None
    assert await access.log_in_by_link(wrong) is None
    assert not await access.log_out(wrong)


async def test_what_cannot_be_a_secret_is_refused_without_a_question(
    access: AccessControl, store: MemoryAccess
) -> None:
    assert await access.authenticate("Basic bWU6eW91") is None
    assert not store.calls


async def test_a_token_is_refused_from_its_expiry_on_also_if_it_is_cached(
    access: AccessControl, clock: VirtualClock
) -> None:
    made = await access.create_token("ci", Role.VIEWER, expires_in=5.0)
    assert await access.authenticate(made.secret) is not None
    await clock.sleep(4.9)
    assert await access.authenticate(made.secret) is not None
    await clock.sleep(0.1)
    assert await access.authenticate(made.secret) is None
    assert await access.log_in(made.secret) is None


async def test_a_revoked_token_is_refused_at_once_and_in_other_processes_soon(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made, other = await a_token(access), other_process(store, clock)
    session = await access.log_in(made.secret)
    assert session is not None
    for process in (access, other):
        assert await process.authenticate(made.secret) is not None
        assert await process.session(session.cookie) is not None

    assert await access.revoke_token(made.record.id)

    assert await access.authenticate(made.secret) is None
    assert await access.session(session.cookie) is None
    assert await access.log_in(made.secret) is None
    assert await other.authenticate(made.secret) is not None  # as the page says
    await clock.sleep(FRESH_FOR)
    assert await other.authenticate(made.secret) is None
    assert await other.session(session.cookie) is None
    assert not await access.revoke_token(made.record.id)
    assert not await access.revoke_token(999)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_look_up_that_began_before_a_revocation_lets_nobody_in_after_it(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock, *, ended: bool
) -> None:
    made = await a_token(access)
    store.seconds["find_token"] = 1.0
    asking = asyncio.create_task(access.authenticate(made.secret))
    await clock.sleep(0.5)

    await access.revoke_token(made.record.id)

    if ended:
        await asking  # its answer is not remembered
    assert await access.authenticate(made.secret) is None  # nor is it joined


async def test_a_token_revoked_while_it_is_looked_up_gets_no_grace(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made = await a_token(access)
    await access.authenticate(made.secret)
    await clock.sleep(FRESH_FOR)
    store.seconds["find_token"] = 1.0
    asking = asyncio.create_task(access.authenticate(made.secret))
    await clock.sleep(0.5)

    await access.revoke_token(made.record.id)
    store.away = True

    with pytest.raises(StoreAwayError):
        await asking


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("", {}),
        ("x" * 101, {}),
        ("a\nb", {}),
        ("a\0b", {}),
        (f"of bot 42:{'x' * 35}", {}),
        (WRONG, {}),
        ("ci", {"role": "boss"}),
        ("ci", {"bot": BotId(0)}),
        ("ci", {"expires_in": 0.0}),
        ("ci", {"expires_in": 1e12}),
        ("ci", {"expires_in": float("nan")}),
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(
    access: AccessControl, store: MemoryAccess, name: str, fields: dict[str, object]
) -> None:
    with pytest.raises(BadInputError):
        await access.create_token(name, **{"role": Role.VIEWER, **fields})  # type: ignore[arg-type]
    assert not store.calls


async def test_whether_there_is_access_depends_on_tokens_that_can_be_used(
    access: AccessControl, clock: VirtualClock
) -> None:
    assert not await access.has_tokens()
    viewer = await access.create_token("v", Role.VIEWER)
    await access.create_token("a", Role.ADMIN, expires_in=60.0)
    assert await access.has_tokens(Role.ADMIN)
    await clock.sleep(60.0)
    assert not await access.has_tokens(Role.OPERATOR)
    assert await access.has_tokens()
    await access.revoke_token(viewer.record.id)
    assert not await access.has_tokens()
    assert [token.name for token in await access.tokens()] == ["v", "a"]


async def test_a_busy_token_is_looked_up_once_in_ten_seconds(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made = await a_token(access)
    answers = await asyncio.gather(*(access.authenticate(made.secret) for _ in range(50)))
    assert None not in answers
    for _ in range(100):
        await access.authenticate(made.secret)
    assert store.calls["find_token"] == 1
    await clock.sleep(FRESH_FOR)
    await asyncio.gather(*(access.authenticate(made.secret) for _ in range(50)))
    assert store.calls["find_token"] == 2


async def test_guesses_are_bounded_and_push_no_token_out(access: AccessControl, store: MemoryAccess) -> None:
    made = await a_token(access)
    await access.authenticate(made.secret)
    for number in range(MOST_UNKNOWN + 50):
        assert await access.authenticate(guess(number)) is None
    assert len(access._tokens) == MOST_UNKNOWN + 1  # noqa: SLF001

    store.calls.clear()
    assert await access.authenticate(made.secret) is not None
    assert await access.authenticate(guess(MOST_UNKNOWN)) is None  # remembered for ten seconds, too
    assert not store.calls


async def test_known_tokens_are_bounded_the_least_used_goes_first(
    access: AccessControl, store: MemoryAccess
) -> None:
    secrets = [(await a_token(access)).secret for _ in range(MOST_KNOWN + 1)]
    for secret in secrets[:-1]:
        await access.authenticate(secret)
    await access.authenticate(secrets[0])
    await access.authenticate(secrets[-1])
    assert len(access._tokens) == MOST_KNOWN  # noqa: SLF001

    store.calls.clear()
    await access.authenticate(secrets[0])
    assert not store.calls
    await access.authenticate(secrets[1])
    assert store.calls["find_token"] == 1


async def test_while_the_database_is_away_tokens_checked_lately_are_accepted_for_a_while(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    made, unseen = await a_token(access), await a_token(access)
    session = await a_session(access)
    await access.authenticate(made.secret)
    await access.session(session.cookie)
    checked = clock.monotonic()
    store.away = True

    while clock.monotonic() < checked + GRACE:
        assert await access.authenticate(made.secret) is not None
        assert await access.session(session.cookie) is not None
        with pytest.raises(StoreAwayError):
            await access.authenticate(unseen.secret)
        await clock.sleep(9.0)
    with pytest.raises(StoreAwayError):
        await access.authenticate(made.secret)
    assert caplog.text.count("cannot be asked") == 1

    store.away = False
    await clock.sleep(RETRY_AFTER)
    assert await access.authenticate(made.secret) is not None
    assert await access.authenticate(unseen.secret) is not None
    assert caplog.text.count("answers again") == 1
    assert made.secret not in caplog.text


async def test_a_revocation_that_failed_does_not_leave_the_token_in_the_cache(
    access: AccessControl, store: MemoryAccess
) -> None:
    made = await a_token(access)
    await access.authenticate(made.secret)
    store.away = True
    with pytest.raises(StoreAwayError):
        await access.revoke_token(made.record.id)
    with pytest.raises(StoreAwayError):
        await access.authenticate(made.secret)


async def test_a_database_that_does_not_answer_holds_up_one_request_not_all(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made, unseen = await a_token(access), await a_token(access)
    await access.authenticate(made.secret)
    await clock.sleep(FRESH_FOR)
    store.hangs = True

    began = clock.monotonic()
    assert await access.authenticate(made.secret) is not None
    assert clock.monotonic() - began == LOOKUP_TIMEOUT
    for _ in range(100):
        assert await access.authenticate(made.secret) is not None
        with pytest.raises(StoreAwayError):
            await access.authenticate(unseen.secret)
    assert clock.monotonic() - began == LOOKUP_TIMEOUT
    await access.close()


async def test_look_ups_under_way_are_bounded(access: AccessControl, store: MemoryAccess) -> None:
    store.hangs = True
    asks = [access.authenticate(guess(number)) for number in range(3 * MOST_LOOKUPS)]
    answers = await asyncio.gather(*asks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreAwayError}
    assert store.calls["find_token"] == MOST_LOOKUPS
    await access.close()


async def test_a_cancelled_request_takes_the_look_up_from_nobody(
    access: AccessControl, clock: VirtualClock
) -> None:
    made = await a_token(access)
    first = asyncio.create_task(access.authenticate(made.secret))
    second = asyncio.create_task(access.authenticate(made.secret))
    await clock.sleep(0)
    first.cancel()
    assert await second is not None
    assert first.cancelled()


async def test_who_waits_when_it_is_closed_is_told_so(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    store.hangs = True
    asking = asyncio.create_task(access.authenticate(WRONG))
    await clock.sleep(0.1)
    await access.close()
    with pytest.raises(ClosedError):
        await asking


async def test_the_last_use_is_written_once_a_minute_off_the_requests_path(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made = await a_token(access)

    async def last_used() -> float | None:
        [token] = [one for one in await store.tokens() if one.id == made.record.id]
        return token.last_used_at

    async with access:
        await clock.sleep(1.0)
        for _ in range(100):
            await access.authenticate(made.secret)
            await clock.sleep(0.1)
        used_at = clock.now() - 0.1
        assert await last_used() is None
        await clock.sleep(NOTE_USES_EVERY)
        assert await last_used() == pytest.approx(used_at)
        await clock.sleep(3 * NOTE_USES_EVERY)
        assert store.calls["note_uses"] == 1  # nothing was used since
        await access.authenticate(made.secret)
        used_at = clock.now()
    assert await last_used() == used_at  # a stop writes the rest


async def test_last_uses_wait_while_the_database_is_away(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    made = await a_token(access)
    async with access:
        await access.authenticate(made.secret)
        used_at = clock.now()
        await clock.sleep(1.0)
        store.away = True
        await clock.sleep(2 * NOTE_USES_EVERY)
        [problem] = access.problems()
        assert "the database cannot be reached" in problem
        store.away = False
        await clock.sleep(NOTE_USES_EVERY)
        assert access.problems() == []
        [token] = await access.tokens()
        assert token.last_used_at == used_at


async def test_what_has_expired_is_purged_every_hour(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    async with access:
        await a_session(access)
        await clock.sleep(SESSION_LIFETIME + 2 * PURGE_EVERY)
    assert 13 <= store.calls["purge"] <= 15
    assert not store._sessions  # noqa: SLF001


async def test_a_process_begins_while_the_database_is_away(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock
) -> None:
    store.away = True
    async with access:
        await clock.sleep(1.0)
        store.away = False
        await clock.sleep(60.0)
        assert await access.authenticate((await a_token(access)).secret) is not None
    async with access:  # and once more
        await clock.sleep(1.0)


async def test_a_session_has_the_rights_of_its_token(access: AccessControl) -> None:
    made = await access.create_token("anna", Role.OPERATOR, bot=BOT)
    begun = await access.log_in(made.secret, address="127.0.0.1", agent="Firefox")

    assert begun is not None
    principal = await access.session(begun.cookie)
    assert principal == begun.principal
    assert principal is not None
    assert (principal.name, principal.role, principal.bot) == ("anna", Role.OPERATOR, BOT)
    assert principal.token_id == made.record.id
    assert principal.session_id is not None
    assert begun.cookie not in repr(begun)
    assert await access.authenticate(begun.cookie) is None  # a cookie is no token
    assert await access.session(made.secret) is None
    [listed] = await access.sessions(made.record.id)
    assert (listed.id, listed.address, listed.agent) == (principal.session_id, "127.0.0.1", "Firefox")


async def test_a_session_ends_twelve_hours_after_the_login_however_much_it_is_used(
    access: AccessControl, clock: VirtualClock
) -> None:
    begun = await a_session(access)
    assert begun.expires_at == clock.now() + SESSION_LIFETIME
    for _ in range(12):
        assert await access.session(begun.cookie) is not None
        await clock.sleep(3600.0)
    assert await access.session(begun.cookie) is None


async def test_a_session_does_not_outlive_its_token(access: AccessControl, clock: VirtualClock) -> None:
    made = await access.create_token("ci", Role.VIEWER, expires_in=60.0)
    begun = await access.log_in(made.secret)
    assert begun is not None
    assert begun.expires_at == made.record.expires_at
    await clock.sleep(60.0)
    assert await access.session(begun.cookie) is None


async def test_a_session_that_was_ended_is_refused_at_once(access: AccessControl) -> None:
    begun, other = await a_session(access), await a_session(access)
    assert await access.session(begun.cookie) is not None

    assert await access.log_out(begun.cookie)

    assert await access.session(begun.cookie) is None
    assert await access.session(other.cookie) is not None
    assert not await access.log_out(begun.cookie)


async def test_the_csrf_token_follows_from_the_cookie(access: AccessControl) -> None:
    begun, other = await a_session(access), await a_session(access)

    assert begun.csrf == access.csrf_of(begun.cookie)
    assert access.check_csrf(begun.cookie, begun.csrf)
    for wrong in (None, "", other.csrf, begun.cookie, begun.csrf + "x", "ä", "\ud83d"):
        assert not access.check_csrf(begun.cookie, wrong)
    assert begun.cookie not in begun.csrf


async def test_a_link_lets_the_first_admin_in_once_without_any_token(access: AccessControl) -> None:
    code = await access.make_login_link()
    assert code.startswith("tgl_")

    begun = [one for one in await asyncio.gather(*(access.log_in_by_link(code) for _ in range(5))) if one]

    assert len(begun) == 1
    principal = await access.session(begun[0].cookie)
    assert principal is not None
    assert (principal.name, principal.role, principal.token_id) == ("first admin", Role.ADMIN, None)
    assert await access.log_in_by_link(code) is None
    assert len(await access.sessions(None)) == 1


async def test_a_link_is_of_use_for_ten_minutes(access: AccessControl, clock: VirtualClock) -> None:
    first, second = await access.make_login_link(), await access.make_login_link()
    await clock.sleep(LINK_LIFETIME - 0.1)
    assert await access.log_in_by_link(first) is not None
    await clock.sleep(0.1)
    assert await access.log_in_by_link(second) is None


async def test_a_change_is_noted_without_secrets_and_cut_short(
    access: AccessControl, clock: VirtualClock
) -> None:
    secret = (await a_token(access)).secret
    await access.note(
        ADMIN, "token.create", bot=BOT, target=17, detail=f"gave {secret} to\nci\0, 42:{'x' * 35} {'y' * 900}"
    )
    [entry] = await access.audit()

    assert (entry.at, entry.principal, entry.token_id) == (clock.now(), "boss", 7)
    assert (entry.action, entry.bot, entry.target) == ("token.create", BOT, "17")
    assert entry.detail is not None
    assert entry.detail.startswith(f"gave {secret[:9]}… to ci , 42:… yyy")
    assert len(entry.detail) <= 300


async def test_the_audit_log_is_read_by_pages(access: AccessControl) -> None:
    for number in range(5):
        await access.note(ADMIN, "queue.pause" if number else "token.create", target=number)

    first = await access.audit(limit=2)
    second = await access.audit(before_id=first[-1].id, limit=2)
    assert [entry.target for entry in first + second] == ["4", "3", "2", "1"]
    assert [entry.target for entry in await access.audit(action="token.create")] == ["0"]
    assert await access.audit(bot=BOT) == []
    assert len(await access.audit(limit=0)) == 1


async def test_an_entry_that_cannot_be_written_is_in_the_log_and_the_change_stands(
    access: AccessControl, store: MemoryAccess, caplog: pytest.LogCaptureFixture
) -> None:
    store.away = True
    await access.note(ADMIN, "queue.pause", bot=BOT, target="1001")

    [line] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage() == (
        "the audit log misses an entry: boss: queue.pause (bot 42, target 1001):"
        " the database cannot be reached"
    )


async def test_a_slow_audit_log_keeps_a_request_for_seconds_only(
    access: AccessControl, store: MemoryAccess, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.seconds["add_audit"] = AUDIT_TIMEOUT + 2.0
    began = clock.monotonic()
    await access.note(ADMIN, "queue.pause")
    assert clock.monotonic() - began == AUDIT_TIMEOUT
    assert "takes longer than 5 s: boss: queue.pause" in caplog.text
    await clock.sleep(2.0)
    assert len(await access.audit()) == 1  # all the same


def test_a_record_says_of_itself_whether_it_can_be_used() -> None:
    token = TokenRecord(id=1, name="ci", role=Role.VIEWER, prefix="tg_", created_at=0.0, expires_at=10.0)
    assert token.is_usable(9.9)
    assert not token.is_usable(10.0)
