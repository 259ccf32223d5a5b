"""`tidegate move`: what waits in a file goes to Redis."""

from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.cli import loop, terminal
from tidegate.cli.broadcast.progress import Pace, phase
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.gates import check_there, quietly
from tidegate.cli.move import source, target
from tidegate.cli.move.bots import register
from tidegate.cli.move.carrying import Carrier
from tidegate.cli.move.report import lines
from tidegate.cli.move.subscriptions import carry_subscriptions
from tidegate.cli.move.target import Target
from tidegate.cli.move.updates import carry_updates
from tidegate.cli.places import is_redis, shown
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreFullError
from tidegate.outbox.sqlite import looking, moving
from tidegate.outbox.sqlite.file import StoreFile
from tidegate.settings import Settings

WAYS: Final = "write tidegate move tidegate.db redis://host:6379/0"


def move(from_: str, to: str, *, dry_run: bool, as_json: bool) -> int:
    """Returns the exit code: 1 if something was left."""
    path = file_named(from_)
    if not is_redis(to):
        raise BadInputError(f"TO is no store in Redis: {WAYS}")
    with quietly():
        found = loop.run(_move(path, to, dry_run=dry_run, as_json=as_json))
    if as_json:
        terminal.put_json(found)
    else:
        for line in lines(found):
            terminal.put_line(line)
    if found["stopped"]:
        return INTERRUPTED
    return 0 if found["passed"] else FAILED


def file_named(text: str) -> Path:
    """`tidegate.db`, `sqlite:tidegate.db` or `sqlite:///tidegate.db`. Raises BadInputError."""
    name = text.removeprefix("sqlite:///").removeprefix("sqlite:")
    if is_redis(name):
        raise BadInputError(f"from Redis, nothing is moved: its messages are delivered by any worker; {WAYS}")
    if "://" in name or not name:
        raise BadInputError(f"FROM is no store in a file: {WAYS}")
    check_there(name)
    path = Path(name)
    if path.is_dir():
        raise BadInputError(f"{name} is a folder: give the file in it, such as {path / 'tidegate.db'}")
    return path


async def _move(path: Path, to: str, *, dry_run: bool, as_json: bool) -> dict[str, Any]:
    clock, settings = Clock(), Settings.read()
    started = clock.monotonic()
    report: dict[str, Any] = {"from": str(path), "to": shown(to), "dry_run": dry_run, "stopped": False}
    try:
        async with (
            source.opened(path) as file,
            target.opened(to, settings, clock, touch=not dry_run) as there,
        ):
            for risk in there.risks:
                terminal.note(f"tidegate: warning: {risk}")
            if dry_run:
                report |= await _would_move(file, there, path, settings)
            else:
                async with source.alone(path, clock):
                    report |= await _carry(file, there, path, settings, as_json=as_json)
            report |= await _left(file, clock)
    except (StoreAwayError, StoreFullError) as error:
        raise type(error)(f"{shown(to)}: {error}") from error
    report["seconds"] = round(clock.monotonic() - started, 1)
    return report | {"passed": dry_run or not report["waiting"]}


async def _carry(
    file: StoreFile, there: Target, path: Path, settings: Settings, *, as_json: bool
) -> dict[str, Any]:
    """Bots and pauses first: workers may run there."""
    clock, stop, rules = Clock(), loop.stop_signal(), settings.rules()
    await source.settle_crashes(file, clock, rules)
    await target.remember_calls(there.outbox, await file.read(moving.calls), rules, clock.now())
    bots = await register(file, there.shelf, path, settings)
    pauses = await file.read(looking.pauses)
    for bot, chat in pauses:
        await there.outbox.pause(bot, chat)
    carrier, pace = Carrier(file, there.outbox, clock), Pace(clock)
    total = sum(await file.read(moving.waiting))
    with phase(clock, "moving", total, as_json=as_json) as show:

        def tell(done: int) -> None:
            pace.read(done)
            show(done, f"{done:,} of {total:,}, {pace.words(total)}")

        await carrier.carry(stop, tell)
    updates = 0 if stop.is_set() else await carry_updates(file, there.link, clock)
    waiting = 0 if stop.is_set() else await carry_subscriptions(file, there.link, clock)
    told = msgspec.structs.asdict(carrier.carried) | {"updates": updates, "subscriptions": waiting}
    return {**told, **bots, "paused": len(pauses), "stopped": stop.is_set()}


async def _would_move(file: StoreFile, there: Target, path: Path, settings: Settings) -> dict[str, Any]:
    bots = await register(file, there.shelf, path, settings, really=False)
    pauses = await file.read(looking.pauses)
    nothing = dict.fromkeys(("moved", "known", "duplicates", "updates", "subscriptions"), 0)
    return {**nothing, **bots, "paused": len(pauses)}


async def _left(file: StoreFile, clock: Clock) -> dict[str, Any]:
    stays = await file.read(lambda tx: moving.left(tx, clock.now()))
    return {"waiting": sum(await file.read(moving.waiting)), **msgspec.structs.asdict(stays)}
