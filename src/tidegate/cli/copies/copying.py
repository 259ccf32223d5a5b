"""`tidegate backup` and `restore`."""

import asyncio
from pathlib import Path
from typing import Any

from tidegate.cli import loop, terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.places import file_of, shown
from tidegate.cli.selection import amount
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.outbox.sqlite import copies
from tidegate.outbox.sqlite.lock import SenderLock

CHOOSE = (
    "what waited when the backup was made may have been delivered since: say --park to hold it back "
    "until you decide, or --resend to send it, perhaps a second time"
)


def back_up(store: str | None, target: str, *, as_json: bool) -> None:
    path = file_of(store)
    if not path.exists():
        raise BadInputError(f"there is no store at {shown(str(path))}: name it with --store")
    copies.back_up(path, Path(target))
    size = Path(target).stat().st_size
    if as_json:
        terminal.put_json({"store": str(path), "file": target, "bytes": size})
        return
    terminal.put_line(f"{path} is copied to {target}, {size:,} bytes.")
    terminal.put_line("The key that opens the bots' tokens is not in it: keep a copy of that elsewhere.")


def restore(store: str | None, source: str, *, park: bool, resend: bool, yes: bool, as_json: bool) -> None:
    named = file_of(store)
    path = named.resolve()  # a link to a store stays one
    if park and resend:
        raise BadInputError("--park and --resend say opposite things: choose one of them")
    if not park and not resend:
        raise BadInputError(CHOOSE)
    if Path(source).resolve() == path:
        raise BadInputError(f"{source} is the store itself: give a backup of it")
    if not path.parent.is_dir():
        raise BadInputError(f"there is no folder {path.parent}: make it, or name another store with --store")
    if path.exists():
        make_sure(f"Put {source} in the place of {path}? What is there is kept beside it.", yes=yes)
    done = loop.run(_restore(path, Path(source), SenderLock(named), park=park))
    if as_json:
        terminal.put_json({"store": str(path), **done})
        return
    terminal.put_line(f"{source} is now the store {path}.")
    if done["moved_to"] is not None:
        terminal.put_line(f"What was there is now {done['moved_to']}")
    if park:
        terminal.put_line(f"Parked {amount(done['parked'], 'message')} that waited.")
    if done["parked"]:
        terminal.put_line("Look: tidegate dlq list --state parked --reason restored; then replay or drop")


async def _restore(store: Path, source: Path, lock: SenderLock, *, park: bool) -> dict[str, Any]:
    """Nobody sends meanwhile."""
    clock = Clock()
    if sender := await lock.holder():
        raise StoreError(f"{sender} sends for {store}: stop it, then restore")
    await lock.take(clock)
    try:
        return await asyncio.to_thread(_replace, store, source, clock.now() if park else None)
    finally:
        await lock.release()


def _replace(store: Path, source: Path, parked_at: float | None) -> dict[str, Any]:
    with copies.ready_copy(source, store) as draft:
        parked = 0 if parked_at is None else copies.park_all(draft, parked_at)
        aside = copies.take_place(draft, store)
    return {"parked": parked, "moved_to": None if aside is None else str(aside)}
