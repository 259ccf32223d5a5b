"""Sessions of flows in Redis: one script per event, shared by all processes."""

import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.flows.port import (
    FlowSessionStore,
    LocalLocks,
    SessionConflictError,
    SessionKey,
    SessionPage,
    StoredSession,
    count_states,
    readable_keys,
    readable_session,
)
from tidegate.flows.session import Session
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.leases import RedisLeases
from tidegate.stores.redis.scripts import load_scripts
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.flows")

KEYS: Final = ("meta", "sessions", "timers", "unfinished", "seen", "unreadable")
SCRIPTS: Final = load_scripts("flows", KEYS)
PAGE_SIZE: Final = 500  # sessions, about
LOCK_SECONDS: Final = 30.0  # until a session that a dead process held is free
LOCK_RETRY_INTERVAL: Final = 0.1  # seconds


class RedisFlowSessions(FlowSessionStore):
    """The sessions of one flow. The connection is opened and closed by its owner."""

    is_durable = True

    def __init__(self, redis: RedisConnection, clock: Clock, flow: str) -> None:
        self.flow = flow
        self._set_aside_count = 0
        self._redis = redis
        self._clock = clock
        self._keys = [redis.key(f"flows:{flow}:{part}") for part in KEYS]
        self._key = dict(zip(KEYS, self._keys, strict=True))
        self.leases = RedisLeases(redis, secrets.token_hex(6), "flows:{}:lease".format)
        self._local = LocalLocks()
        self._renewals = BackgroundTasks()

    async def _run(self, step: str, *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        return await self._redis.script(SCRIPTS[step], self._keys, *args)

    def unreadable(self) -> int:
        return self._set_aside_count

    async def load(self, key: SessionKey, event: str | None = None) -> StoredSession:
        stored, is_seen = await self._run("load", key.text, event or "")
        if not stored:
            return StoredSession(is_seen=bool(is_seen))
        version, _, body = stored.partition(b":")
        read = readable_session(self.flow, key.text, body)
        if read is None or not version.isdigit():
            await self._set_aside([key.text, stored])
            return StoredSession(is_seen=bool(is_seen))
        return StoredSession(read[1], int(version), bool(is_seen))

    async def _set_aside(self, unreadable: Sequence[Argument]) -> None:
        """Keep sessions that cannot be read, as key and stored bytes in turn, where nobody looks for them."""
        self._set_aside_count += await self._run("set_aside", *unreadable)

    async def commit(
        self,
        key: SessionKey,
        session: Session | None,
        *,
        expected: int,
        seen: str | None = None,
        at: float = 0.0,
    ) -> int:
        columns: tuple[Argument, ...] = ("", "", 0)
        if session is not None:
            timer = "" if session.timer is None else repr(session.timer)
            columns = (session.to_json(), timer, int(bool(session.pending)))
        version: int = await self._run("commit", key.text, expected, *columns, seen or "", repr(at))
        if version < 0:
            raise SessionConflictError(self.flow, key)
        return version

    async def due(self, now: float, limit: int) -> Sequence[tuple[SessionKey, Session]]:
        while True:
            reply = await self._run("due", repr(now), limit)
            found, unreadable = [], list[Argument]()
            for text, stored in zip(reply[::2], reply[1::2], strict=True):
                body = stored.partition(b":")[2]
                one = readable_session(self.flow, text.decode(errors="replace"), body)
                if one is None:
                    unreadable += [text, stored]
                else:
                    found.append(one)
            if not unreadable:
                return found
            await self._set_aside(unreadable)

    async def timers(self, now: float) -> tuple[int, float | None]:
        count, following = await self._run("timers", repr(now))
        return count, float(following) if following else None

    async def unfinished(self, cursor: str = "") -> SessionPage:
        return await self._page("SSCAN", "unfinished", cursor)

    async def scan(self, cursor: str = "") -> SessionPage:
        return await self._page("HSCAN", "sessions", cursor)

    async def _page(self, command: str, part: str, cursor: str) -> SessionPage:
        scanned = await self._redis.command(command, self._key[part], cursor or "0", "COUNT", PAGE_SIZE)
        after, found = int(scanned[0]), list(scanned[1])
        keys = readable_keys(key.decode(errors="replace") for key in found)
        return SessionPage(keys, str(after) if after else "")

    async def count_states(self) -> dict[tuple[int, str], int]:
        counts: Counter[tuple[int, str]] = Counter()
        cursor = "0"
        while True:
            after, found = await self._redis.command(
                "HSCAN", self._key["sessions"], cursor, "COUNT", PAGE_SIZE
            )
            fields = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
            for key, stored in fields:
                count_states(counts, key.decode(errors="replace"), stored.partition(b":")[2])
            if (cursor := str(int(after))) == "0":
                return dict(counts)

    async def erase(self, key: SessionKey) -> int:
        """Erase a session and the events that it has seen, whatever its version; return how many."""
        command, text, cursor = self._redis.command, key.text, "0"
        while True:
            pattern = ("MATCH", f"{text}:*", "COUNT", PAGE_SIZE)
            after, found = await command("ZSCAN", self._key["seen"], cursor, *pattern)
            # With scores: as pairs, or one after the other, depending on the driver.
            members = [one[0] for one in found] if found and isinstance(found[0], tuple) else found[::2]
            if members:
                await command("ZREM", self._key["seen"], *members)
            if (cursor := str(int(after))) == "0":
                break
        await command("ZREM", self._key["timers"], text)
        await command("SREM", self._key["unfinished"], text)
        await command("HDEL", self._key["unreadable"], text)
        return int(await command("HDEL", self._key["sessions"], text))

    async def forget_seen(self, before: float) -> int:
        return int(await self._redis.command("ZREMRANGEBYSCORE", self._key["seen"], "-inf", f"({before!r}"))

    async def fingerprint(self) -> str | None:
        found = await self._redis.command("HGET", self._key["meta"], "fingerprint")
        return None if found is None else found.decode()

    async def save_fingerprint(self, fingerprint: str) -> None:
        await self._redis.command("HSET", self._key["meta"], "fingerprint", fingerprint)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        lock = f"{self.flow}:{name}"
        async with self._local.hold(lock):  # the lease is this process's: one task of it at a time
            while not await self.leases.lease(lock, LOCK_SECONDS):
                await self._clock.sleep(LOCK_RETRY_INTERVAL)
            renewal = self._renewals.start(self._renew(lock), f"holds {lock}")
            try:
                yield
            finally:
                renewal.cancel()
                with suppress(StoreError, ClosedError):  # the event was handled all the same; the lease ends
                    await self.leases.give_back(lock)

    async def _renew(self, lock: str) -> None:
        while True:
            await self._clock.sleep(LOCK_SECONDS / 3)
            try:
                await self.leases.lease(lock, LOCK_SECONDS)
            except StoreError as error:
                text = "a session could not be held, another process may go on with it: %s"
                log.warning(text, type(error).__name__)
