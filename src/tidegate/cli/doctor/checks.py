"""What the doctor concludes from what was found. Pure: no file, no network, no clock."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from tidegate.stores.redis.durability import RedisFacts, judge_redis

State = Literal["ok", "info", "warning", "failed"]

OLDEST_PYTHON = (3, 11)
UNREADABLE = "the address given"
RELEASED = 2026  # no clock is right that shows an earlier year
COARSE_CLOCK = 0.005  # seconds; waits of a few milliseconds need a finer one
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra == ['\"](\w+)['\"]")


class Check(NamedTuple):
    """`info` is a thing to know that is neither good nor bad. `advice`: what to do, if anything."""

    name: str
    state: State
    found: str
    advice: str = ""


def python(version: tuple[int, ...]) -> Check:
    found = ".".join(map(str, version[:3]))
    if version < OLDEST_PYTHON:
        return Check("python", "failed", found, "install Python 3.11 or later")
    return Check("python", "ok", found)


def extras_of(requirements: Iterable[str]) -> dict[str, list[str]]:
    """The packages of each extra, from a package's metadata; without `all`, which repeats the others."""
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and match[2] != "all":
            extras.setdefault(match[2], []).append(match[1])
    return extras


def extra_part(name: str, versions: Mapping[str, str | None]) -> Check:
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        found = "not installed" if len(missing) == len(versions) else f"without {', '.join(missing)}"
        return Check(f"extra {name}", "info", found, f"to use it: {install(name)}")
    return Check(
        f"extra {name}", "ok", ", ".join(f"{package} {version}" for package, version in versions.items())
    )


def install(name: str) -> str:
    return f"pip install 'tidegate[{name}]'"


def redis(where: str, facts: RedisFacts, name: str = "redis") -> list[Check]:
    """Whether it can be used, forgets under pressure, and survives a restart."""
    return [
        Check(name, one.verdict, f"{where}, version {one.found}", one.advice)
        if one.about == "version"
        else Check(f"{name} {one.about}", one.verdict, one.found, one.advice)
        for one in judge_redis(facts)
    ]


def port(number: int, *, free: bool) -> Check:
    if free:
        return Check(f"port {number}", "ok", "free")
    return Check(f"port {number}", "warning", "taken", "stop what uses it, or choose another with --port")


def wall_clock(now: float) -> Check:
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if datetime.fromtimestamp(now, UTC).year < RELEASED:
        return Check(
            "wall clock", "failed", shown, "set the clock, for instance by NTP: timedatectl set-ntp true"
        )
    return Check("wall clock", "ok", shown)


def monotonic_clock(resolution: float) -> Check:
    found = f"steps of {resolution * 1e6:g} µs"
    if resolution > COARSE_CLOCK:
        return Check("monotonic clock", "warning", found, "short waits will be longer than asked")
    return Check("monotonic clock", "ok", found)


def time_zones(count: int) -> Check:
    if count == 0:
        return Check("time zones", "warning", "no data", "local times need it: pip install tzdata")
    return Check("time zones", "ok", f"{count} known")


def address(url: str) -> str:
    """Host, port and name of the database; never a user, a password or a parameter."""
    try:
        parts = urlsplit(url)
    except ValueError:  # what is in brackets is no address
        return UNREADABLE
    if "@" in parts.path + parts.query + parts.fragment:
        return UNREADABLE  # an unescaped password would show
    return parts.netloc.rpartition("@")[2] + parts.path or UNREADABLE
