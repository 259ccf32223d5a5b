"""`tidegate move`: everything that waits in a file goes to Redis."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tidegate.cli import loop, terminal
from tidegate.cli.backup import reminders_file
from tidegate.cli.errors import FAILED, INTERRUPTED
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson
from tidegate.cli.progress import CountRate, phase
from tidegate.cli.store import check_store_exists, is_redis, public_store_name, quietly
from tidegate.clock import Clock
from tidegate.database import data_file
from tidegate.errors import BadInputError, StoreAwayError, StoreFullError
from tidegate.settings import Settings
from tidegate.stores.transfer import transfer_store

app = typer.Typer(add_completion=False)

Source = Annotated[str, typer.Argument(metavar="FROM", help="A store in a file: tidegate.db.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="A store in Redis: redis://host:6379/0.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move; change nothing.")]

# The counts of a report, in words.
MOVED_TOO: Final[dict[str, tuple[str, ...]]] = {
    "moved_letters": ("dead or parked message",),
    "moved_ended": ("ended message",),
    "moved_limits": ("limit",),
    "moved_parked_updates": ("parked update",),
    "subscriptions": ("subscription",),
    "sessions": ("session",),
    "moved_conversations": ("conversation",),
    "moved_fed_updates": ("shared update",),
    "moved_readers": ("reader of updates", "readers of updates"),
}
REDIS: Final = "redis://"
USAGE: Final = "write tidegate move tidegate.db redis://host:6379/0"


@app.command(epilog="[b]Try it:[/b]  tidegate move tidegate.db redis://localhost:6379/0 --dry-run")
def move(source: Source, target: Target, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Move everything from a file to Redis: what waits, in order, and what is remembered.

    Times, keys, pauses and limits go along, and so do dead letters, parked updates, subscriptions, sessions,
    conversations and readers of updates. Stop the worker of the file first. Registered bots are moved if
    TIDEGATE_KEY is set. If it is stopped or killed, run it again: it goes on. Messages that were tried before
    get all their attempts again, at once.
    """
    path = file_named(source)
    if not is_redis(target):
        raise BadInputError(f"TO is not a store in Redis: {USAGE}")
    with quietly():
        found = loop.run(_move(path, target, dry_run=dry_run, as_json=as_json))
    terminal.report(found, *move_lines(found), as_json=as_json)
    if found["stopped"]:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if found["passed"] else FAILED)


def file_named(text: str) -> Path:
    """Read `tidegate.db`, `sqlite:tidegate.db` or `sqlite:///tidegate.db`. Raises BadInputError."""
    name = text.removeprefix("sqlite:///").removeprefix("sqlite:")
    if is_redis(name):
        raise BadInputError(f"nothing moves out of Redis, where any worker delivers its messages: {USAGE}")
    if "://" in name or not name:
        raise BadInputError(f"FROM is not a store in a file: {USAGE}")
    check_store_exists(name)
    path = Path(name)
    if path.is_dir():
        raise BadInputError(f"{name} is a folder: give the file in it, such as {path / 'tidegate.db'}")
    return path


async def _move(path: Path, to: str, *, dry_run: bool, as_json: bool) -> dict[str, Any]:
    clock = Clock()
    started = clock.monotonic()

    @contextmanager
    def progress(total: int) -> Iterator[Callable[[int], None]]:
        rate = CountRate(clock)
        with phase(clock, "moving", total, as_json=as_json) as show:

            def tell(done: int) -> None:
                rate.read(done)
                show(done, f"{done:,} of {total:,}, {rate.words(total)}")

            yield tell

    try:
        found = await transfer_store(
            path,
            to,
            Settings.read(),
            clock,
            dry_run=dry_run,
            stop=loop.stop_signal(),
            warn=lambda risk: terminal.note(f"tidegate: warning: {risk}"),
            progress=progress,
        )
    except (StoreAwayError, StoreFullError) as error:
        raise type(error)(f"{public_store_name(to)}: {error}") from error
    seconds, passed = round(clock.monotonic() - started, 1), dry_run or not found["waiting"]
    where = {"from": str(path), "to": public_store_name(to), "dry_run": dry_run}
    reminders = await asyncio.to_thread(reminders_file, path)
    kept = {"reminders": None if reminders is None else str(reminders)}
    return {**where, **found, **kept, "seconds": seconds, "passed": passed}


def move_lines(found: dict[str, Any]) -> list[str]:
    """Say what moved, what stays and where, and what to do next."""
    stays = _stays(found)
    is_over = not (found["dry_run"] or found["waiting"] or found["bots_left"] or stays)
    over = [f"Nothing is left to move: rename {found['from']}, or processes warn that it is not used."]
    return [*_moved(found), *_bots(found), *stays, *reminders_lines(found), *(over if is_over else [])]


def reminders_lines(found: dict[str, Any]) -> list[str]:
    """Say how processes find reminders and jobs, which stay in their file, if they would look elsewhere."""
    file, beside_redis = found["reminders"], data_file(REDIS)
    if file is None or (beside_redis is not None and Path(file).absolute() == beside_redis.absolute()):
        return []
    address = f"DATABASE_URL=sqlite:///{Path(file).absolute()}"
    return [f"Reminders and jobs stay in {file}: processes on this machine find them there with {address}"]


def _moved(found: dict[str, Any]) -> list[str]:
    where = f"from {found['from']} to {found['to']}"
    if found["dry_run"]:
        return [f"{amount(found['waiting'], 'message')} would move {where}; nothing was changed."]
    lines = [f"Moved {amount(found['moved'], 'message')} {where} in {found['seconds']:,.1f} s."]
    if found["known"]:
        lines.append(f"{amount(found['known'], 'message was', 'messages were')} there already.")
    if found["duplicates"]:
        which = amount(found["duplicates"], "message was", "messages were")
        lines.append(f"{which} dropped: others with the same dedup key exist there.")
    if found["updates"]:
        lines.append(f"{amount(found['updates'], 'update')} that waited to be handled moved too.")
    too = [amount(found[name], *words) for name, words in MOVED_TOO.items() if found[name]]
    if too:
        lines.append(f"Moved too: {', '.join(too)}.")
    if found["paused"]:
        lines.append(f"{amount(found['paused'], 'pause')} kept.")
    if found["waiting"]:
        lines.append(f"{amount(found['waiting'], 'message still waits', 'messages still wait')} in the file.")
        lines.append("Run the same command again once no process puts messages into the file.")
    return lines


def _bots(found: dict[str, Any]) -> list[str]:
    lines = []
    if found["bots"]:
        word = "would be registered" if found["dry_run"] else "registered"
        lines.append(f"Bots {word} there: {_named(found['bots'])}")
    if found["bots_left"]:
        lines.append(
            f"Not registered there: {_named(found['bots_left'])}; their messages wait until tidegate bot add."
            f" {found['why_left']}"
        )
    return lines


def _stays(found: dict[str, Any]) -> list[str]:
    lines = []
    letters = found["dead"] + found["parked"]
    if letters:
        lines.append(
            f"{amount(letters, 'dead or parked message')}: tidegate dlq list --store {found['from']}"
        )
    if found["ended"]:
        lines.append(f"{amount(found['ended'], 'message')} that ended")
    if found["dedup_keys"]:
        lines.append(
            f"{amount(found['dedup_keys'], 'dedup key')} of ended or dead messages: the same broadcast,"
            " run on Redis, would send to these again"
        )
    if found["limits"]:
        lines.append(f"{amount(found['limits'], 'limit')} that 429s have taught or closed")
    if found["parked_updates"]:
        lines.append(f"{amount(found['parked_updates'], 'parked update')}: tidegate inbox")
    if found["conversations"]:
        lines.append(amount(found["conversations"], "conversation"))
    heading = "Would move too:" if found["dry_run"] else "Stays behind until the same command is run again:"
    return [heading, *(f"  {line}" for line in lines)] if lines else []


def _named(bots: list[int]) -> str:
    return ", ".join(f"{bot}:…" for bot in bots)
