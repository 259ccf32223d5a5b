"""`tidegate move`: everything that waits in a file goes to Redis."""

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from tidegate.cli import loop, terminal
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson
from tidegate.cli.progress import CountRate, phase
from tidegate.cli.store import check_there, is_redis, quietly, shown_store
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreFullError
from tidegate.settings import Settings
from tidegate.stores import transfer
from tidegate.stores.sqlite import export, message_rows
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.transfer import (
    MessageTransfer,
    TransferTarget,
    carry_subscriptions,
    carry_updates,
    transfer_bots,
)

app = typer.Typer()

Source = Annotated[str, typer.Argument(metavar="FROM", help="A store in a file: tidegate.db.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="A store in Redis: redis://host:6379/0.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would move; change nothing.")]


@app.command(epilog="[b]Try it:[/b]  tidegate move tidegate.db redis://localhost:6379/0 --dry-run")
def move(source: Source, target: Target, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Move everything that waits from a file to Redis, in order, with its times, keys and pauses.

    Stop the worker of the file first. Bots that are registered go along if TIDEGATE_KEY is set. Stopped or
    killed at any moment, do it again: it goes on. What was tried before has all its attempts again, and no
    pause before the next. Dead letters, parked messages and what has ended stay in the file.
    """
    raise typer.Exit(move_store(source, target, dry_run=dry_run, as_json=as_json))


def move_lines(found: dict[str, Any]) -> list[str]:
    """For a person: what went, what stays and where, what to do next."""
    return [*_gone(found), *_bots(found), *_stays(found)]


def _gone(found: dict[str, Any]) -> list[str]:
    where = f"from {found['from']} to {found['to']}"
    if found["dry_run"]:
        return [f"{amount(found['waiting'], 'message')} would move {where}; nothing was changed."]
    told = [f"Moved {amount(found['moved'], 'message')} {where} in {found['seconds']:,.1f} s."]
    if found["known"]:
        told.append(f"{amount(found['known'], 'message was', 'messages were')} there already.")
    if found["duplicates"]:
        which = amount(found["duplicates"], "message was", "messages were")
        told.append(f"{which} dropped: others with the same dedup key are there.")
    if found["updates"]:
        told.append(f"{amount(found['updates'], 'update')} that waited to be handled moved too.")
    if found["subscriptions"]:
        told.append(f"{amount(found['subscriptions'], 'subscription')} moved too.")
    if found["paused"]:
        told.append(f"{amount(found['paused'], 'pause')} kept.")
    if found["waiting"]:
        told.append(f"{amount(found['waiting'], 'message still waits', 'messages still wait')} in the file.")
        told.append("Run the same command again, once nobody puts into the file any more.")
    return told


def _bots(found: dict[str, Any]) -> list[str]:
    told = []
    if found["bots"]:
        word = "would be registered" if found["dry_run"] else "registered"
        told.append(f"Bots {word} there: {_named(found['bots'])}")
    if found["bots_left"]:
        told.append(
            f"Not registered there: {_named(found['bots_left'])}; their messages wait until tidegate bot add."
            f" {found['why_left']}"
        )
    return told


def _stays(found: dict[str, Any]) -> list[str]:
    told = []
    letters = found["dead"] + found["parked"]
    if letters:
        told.append(
            f"{amount(letters, 'dead or parked message')}: tidegate dlq list --store {found['from']};"
            " what is replayed there moves with another run"
        )
    if found["ended"]:
        told.append(f"{amount(found['ended'], 'message')} that ended, known in the file only")
    if found["dedup_keys"]:
        told.append(
            f"{amount(found['dedup_keys'], 'dedup key')} of what has ended or is dead: the same broadcast,"
            " run on Redis, would send to these again"
        )
    if found["closed_for"]:
        closed = span(found["closed_for"])
        told.append(f"What 429s have closed, for another {closed}: start workers there after that")
    return ["Stays behind:", *(f"  {line}" for line in told)] if told else []


def _named(bots: list[int]) -> str:
    return ", ".join(f"{bot}:…" for bot in bots)


WAYS: Final = "write tidegate move tidegate.db redis://host:6379/0"


def move_store(from_: str, to: str, *, dry_run: bool, as_json: bool) -> int:
    """Returns the exit code: 1 if something was left."""
    path = file_named(from_)
    if not is_redis(to):
        raise BadInputError(f"TO is no store in Redis: {WAYS}")
    with quietly():
        found = loop.run(_move(path, to, dry_run=dry_run, as_json=as_json))
    if as_json:
        terminal.put_json(found)
    else:
        for line in move_lines(found):
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
    report: dict[str, Any] = {"from": str(path), "to": shown_store(to), "dry_run": dry_run, "stopped": False}
    try:
        async with (
            transfer.open_source(path) as file,
            transfer.open_target(to, settings, clock, touch=not dry_run) as there,
        ):
            for risk in there.risks:
                terminal.note(f"tidegate: warning: {risk}")
            if dry_run:
                report |= await _would_move(file, there, path, settings)
            else:
                async with transfer.exclusive_sender(path, clock):
                    report |= await _carry(file, there, path, settings, as_json=as_json)
            report |= await _left(file, clock)
    except (StoreAwayError, StoreFullError) as error:
        raise type(error)(f"{shown_store(to)}: {error}") from error
    report["seconds"] = round(clock.monotonic() - started, 1)
    return report | {"passed": dry_run or not report["waiting"]}


async def _carry(
    file: StoreFile, there: TransferTarget, path: Path, settings: Settings, *, as_json: bool
) -> dict[str, Any]:
    """Bots and pauses first: workers may run there."""
    clock, stop, rules = Clock(), loop.stop_signal(), settings.rules()
    await transfer.settle_crashes(file, clock, rules)
    await transfer.remember_calls(there.outbox, await file.read(export.recent_calls), rules, clock.now())
    bots = await transfer_bots(file, there.shelf, path, settings)
    pauses = await file.read(message_rows.pauses)
    for bot, chat in pauses:
        await there.outbox.pause(bot, chat)
    carrier, pace = MessageTransfer(file, there.outbox, clock), CountRate(clock)
    total = sum(await file.read(export.count_to_move))
    with phase(clock, "moving", total, as_json=as_json) as show:

        def tell(done: int) -> None:
            pace.read(done)
            show(done, f"{done:,} of {total:,}, {pace.words(total)}")

        await carrier.carry(stop, tell)
    updates = 0 if stop.is_set() else await carry_updates(file, there.link, clock)
    waiting = 0 if stop.is_set() else await carry_subscriptions(file, there.link, clock)
    told = msgspec.structs.asdict(carrier.carried) | {"updates": updates, "subscriptions": waiting}
    return {**told, **bots, "paused": len(pauses), "stopped": stop.is_set()}


async def _would_move(
    file: StoreFile, there: TransferTarget, path: Path, settings: Settings
) -> dict[str, Any]:
    bots = await transfer_bots(file, there.shelf, path, settings, really=False)
    pauses = await file.read(message_rows.pauses)
    nothing = dict.fromkeys(("moved", "known", "duplicates", "updates", "subscriptions"), 0)
    return {**nothing, **bots, "paused": len(pauses)}


async def _left(file: StoreFile, clock: Clock) -> dict[str, Any]:
    stays = await file.read(lambda tx: export.left_behind(tx, clock.now()))
    return {"waiting": sum(await file.read(export.count_to_move)), **msgspec.structs.asdict(stays)}
