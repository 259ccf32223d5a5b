"""`tidegate doctor`: all checks at once, each bounded in time, as a table or as JSON."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.doctor import probes
from tidegate.cli.doctor.checks import Check, State
from tidegate.cli.store import is_redis
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.settings import Settings

LONGEST = 3.0  # seconds for one probe
LOOKS: Final[dict[State, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "info": ("·", "dim"),
    "warning": ("!", "bold yellow"),
    "failed": ("✗", "bold red"),
}


def examine(*, as_json: bool) -> int:
    """Print what was found; returns 1 if something failed, else 0."""
    checks = loop.run(_all())
    failed = any(check.state == "failed" for check in checks)
    if as_json:
        terminal.put_json({"checks": [check._asdict() for check in checks], "passed": not failed})
    else:
        terminal.put(_table(checks))
        terminal.put(Text(_summary(checks), style="bold red" if failed else "bold green"))
    return 1 if failed else 0


async def _all() -> list[Check]:
    settings, complaints = _settings()
    looks = [
        _bounded("python", asyncio.to_thread(probes.machine)),
        _bounded("extras", asyncio.to_thread(probes.extras)),
        _bounded("ports", asyncio.to_thread(probes.ports)),
    ]
    for variable, url in _redises(settings).items():
        looks.append(_bounded("redis", probes.redis(url, variable)))
    if settings.database_url:
        looks.append(_bounded("database", probes.database(settings.database_url.get_secret_value())))
    return complaints + [check for found in await asyncio.gather(*looks) for check in found]


def _redises(settings: Settings) -> dict[str, str]:
    """Their addresses by the variables that give them. One that is the store is looked at once, as that."""
    found = {"TIDEGATE_STORE": settings.tidegate_store} if is_redis(settings.tidegate_store) else {}
    url = settings.redis_url.get_secret_value() if settings.redis_url else None
    return found if url is None or url in found.values() else found | {"REDIS_URL": url}


def _settings() -> tuple[Settings, list[Check]]:
    """A bad setting is a finding: the other checks go on without any."""
    try:
        return Settings.read(), []
    except BadInputError as error:
        return Settings.model_construct(), [Check("settings", "failed", "cannot be read", str(error))]


async def _bounded(name: str, look: Awaitable[list[Check]]) -> list[Check]:
    try:
        async with Clock().timeout(LONGEST):
            return await look
    except TimeoutError:
        found = f"no result within {LONGEST:g} s"
        return [Check(name, "failed", found, "look whether a name or a disk does not answer")]


def _table(checks: list[Check]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("found")
    table.add_column("what to do")
    for check in checks:
        mark, style = LOOKS[check.state]
        # As texts: an address may hold what Rich would take for markup.
        table.add_row(Text(mark, style), Text(check.name), Text(check.found), Text(check.advice))
    return table


def _summary(checks: list[Check]) -> str:
    failed = sum(check.state == "failed" for check in checks)
    warnings = sum(check.state == "warning" for check in checks)
    if failed:
        return f"{failed} failed, {warnings} to look at."
    return f"Nothing failed, {warnings} to look at." if warnings else "All is well."
