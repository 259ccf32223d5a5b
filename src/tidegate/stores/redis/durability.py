"""Checks whether a Redis keeps its data when memory is full and after a restart."""

import asyncio
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreError

if TYPE_CHECKING:  # the doctor concludes without the driver
    from tidegate.stores.redis.connection import RedisConnection

OLDEST_REDIS: Final = (6, 2)

RedisVerdict = Literal["ok", "info", "warning", "failed"]


class RedisFacts(NamedTuple):
    """Facts that a Redis reports about itself; None if it does not."""

    version: str
    policy: str | None
    appends: bool | None
    saves: bool | None
    fsync: str | None = None  # of the append-only file: always, everysec, no


class RedisFinding(NamedTuple):
    """`info` is neither good nor bad. `advice` says what to do, if anything."""

    about: Literal["version", "memory", "persistence"]
    verdict: RedisVerdict
    found: str
    advice: str = ""


async def durability_warnings(connection: "RedisConnection") -> list[str]:
    """Return the warnings, a line each. Raises StoreError if Redis cannot be asked."""
    findings = judge_redis(await read_redis_facts(connection))
    grave = [one for one in findings if one.verdict in {"warning", "failed"}]
    return [f"the store's Redis, {one.about}: {one.found}; {one.advice}" for one in grave]


async def redis_facts_at(url: str, clock: Clock, seconds: float) -> RedisFacts:
    """Ask the Redis at an address. Raises ImportError without the driver, TimeoutError, or StoreError."""
    from tidegate.stores.redis.connection import RedisPyConnection  # noqa: PLC0415  (its driver is an extra)

    # In a thread: it reads script files.
    connection = await asyncio.to_thread(RedisPyConnection, url, clock, secrets.token_hex(6))
    try:
        async with clock.timeout(seconds):
            return await read_redis_facts(connection)
    finally:
        await connection.close()


async def read_redis_facts(connection: "RedisConnection") -> RedisFacts:
    info = _info(await connection.command("INFO"))
    appends = info.get("aof_enabled")
    saves = await _setting(connection, "save")
    return RedisFacts(
        version=str(info.get("redis_version", "")),
        policy=info.get("maxmemory_policy"),
        appends=None if appends is None else bool(int(appends)),
        saves=None if saves is None else bool(saves),
        fsync=await _setting(connection, "appendfsync"),
    )


def judge_redis(facts: RedisFacts) -> list[RedisFinding]:
    """Judge the version, what happens when memory is full, and whether data survives a restart."""
    if version_numbers(facts.version) < OLDEST_REDIS:
        return [RedisFinding("version", "failed", facts.version, "install Redis 6.2 or later, or Valkey")]
    return [RedisFinding("version", "ok", facts.version), _memory(facts.policy), _persistence(facts)]


def _memory(policy: str | None) -> RedisFinding:
    if policy is None:
        return RedisFinding("memory", "info", "it does not tell what it does when memory is full")
    if policy != "noeviction":
        advice = "messages could vanish when memory is full: CONFIG SET maxmemory-policy noeviction"
        return RedisFinding("memory", "warning", f"maxmemory-policy {policy}", advice)
    return RedisFinding("memory", "ok", "keeps what it holds (noeviction)")


def _persistence(facts: RedisFacts) -> RedisFinding:
    if facts.appends and facts.fsync == "no":
        advice = "a power cut loses what the system has not written yet: CONFIG SET appendfsync everysec"
        return RedisFinding("persistence", "warning", "append-only file, appendfsync no", advice)
    if facts.appends:
        return RedisFinding(
            "persistence", "ok", "append-only file" + (f", {facts.fsync}" if facts.fsync else "")
        )
    if facts.appends is None or facts.saves is None:
        return RedisFinding("persistence", "info", "it does not tell whether it writes to disk")
    if facts.saves:
        advice = "the last minutes are lost in a crash: CONFIG SET appendonly yes"
        return RedisFinding("persistence", "warning", "snapshots only", advice)
    advice = "a restart loses every message: CONFIG SET appendonly yes"
    return RedisFinding("persistence", "warning", "off", advice)


def version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


async def _setting(connection: "RedisConnection", name: str) -> str | None:
    """Return None where CONFIG is forbidden, as many hosting providers do."""
    try:
        found = await connection.command("CONFIG", "GET", name)
    except StoreAwayError:
        raise
    except StoreError:
        return None
    if not isinstance(found, Mapping):
        found = dict(zip(found[::2], found[1::2], strict=False))
    return {_text(key): _text(value) for key, value in found.items()}.get(name)


def _info(found: Any) -> Mapping[str, Any]:  # noqa: ANN401  (parsed by the driver, or not)
    if isinstance(found, Mapping):
        return found
    lines = (line.partition(":") for line in _text(found).splitlines())
    return {name: value for name, colon, value in lines if colon}


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
