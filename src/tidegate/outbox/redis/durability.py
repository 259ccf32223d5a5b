"""Whether a Redis keeps what it holds, when memory is full and after a restart: facts, and what follows."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tidegate.errors import StoreAwayError, StoreError

if TYPE_CHECKING:  # the doctor concludes without the driver
    from tidegate.outbox.redis.link import Link

OLDEST: Final = (6, 2)

Verdict = Literal["ok", "info", "warning", "failed"]


class Facts(NamedTuple):
    """What a Redis says about itself; None where it does not tell."""

    version: str
    policy: str | None
    appends: bool | None
    saves: bool | None
    fsync: str | None = None  # of the append-only file: always, everysec, no


class Finding(NamedTuple):
    """`info` is a thing to know that is neither good nor bad. `advice`: what to do, if anything."""

    about: Literal["version", "memory", "persistence"]
    verdict: Verdict
    found: str
    advice: str = ""


async def look(link: "Link") -> list[str]:
    """What is to be warned of, a line each. Raises StoreError if it cannot be asked."""
    grave = [one for one in conclude(await ask(link)) if one.verdict in {"warning", "failed"}]
    return [f"the store's Redis, {one.about}: {one.found}; {one.advice}" for one in grave]


async def ask(link: "Link") -> Facts:
    info = _info(await link.command("INFO"))
    appends = info.get("aof_enabled")
    saves = await _setting(link, "save")
    return Facts(
        version=str(info.get("redis_version", "")),
        policy=info.get("maxmemory_policy"),
        appends=None if appends is None else bool(int(appends)),
        saves=None if saves is None else bool(saves),
        fsync=await _setting(link, "appendfsync"),
    )


def conclude(facts: Facts) -> list[Finding]:
    """Whether it can be used, forgets under pressure, and survives a restart."""
    if numbers(facts.version) < OLDEST:
        return [Finding("version", "failed", facts.version, "install Redis 6.2 or later, or Valkey")]
    return [Finding("version", "ok", facts.version), _memory(facts.policy), _persistence(facts)]


def _memory(policy: str | None) -> Finding:
    if policy is None:
        return Finding("memory", "info", "it does not tell what it does when memory is full")
    if policy != "noeviction":
        advice = "messages could vanish when memory is full: CONFIG SET maxmemory-policy noeviction"
        return Finding("memory", "warning", f"maxmemory-policy {policy}", advice)
    return Finding("memory", "ok", "keeps what it holds (noeviction)")


def _persistence(facts: Facts) -> Finding:
    if facts.appends and facts.fsync == "no":
        advice = "a power cut loses what the system has not written yet: CONFIG SET appendfsync everysec"
        return Finding("persistence", "warning", "append-only file, appendfsync no", advice)
    if facts.appends:
        return Finding("persistence", "ok", "append-only file" + (f", {facts.fsync}" if facts.fsync else ""))
    if facts.appends is None or facts.saves is None:
        return Finding("persistence", "info", "it does not tell whether it writes to disk")
    if facts.saves:
        advice = "the last minutes are lost in a crash: CONFIG SET appendonly yes"
        return Finding("persistence", "warning", "snapshots only", advice)
    advice = "a restart loses every message: CONFIG SET appendonly yes"
    return Finding("persistence", "warning", "off", advice)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


async def _setting(link: "Link", name: str) -> str | None:
    """None where CONFIG is forbidden, as by many hosters."""
    try:
        found = await link.command("CONFIG", "GET", name)
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
