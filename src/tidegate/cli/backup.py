"""`tidegate backup` and `tidegate restore`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.queue import OfBot
from tidegate.cli.store import file_of, shown_store
from tidegate.cli.terminal import confirm
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.stores.sqlite import backups
from tidegate.stores.sqlite.sender_lock import SenderLock

app = typer.Typer()

Target = Annotated[str, typer.Argument(metavar="FILE", help="Where to; must not exist yet.")]
Source = Annotated[str, typer.Argument(metavar="FILE", help="What tidegate backup made.")]
Park = Annotated[
    bool, typer.Option("--park", help="Hold back what waited at the time, until an operator decides.")
]
Resend = Annotated[
    bool, typer.Option("--resend", help="Send what waited at the time, perhaps a second time.")
]
Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")]


@app.command()
def backup(target: Target, *, store: Store = None, as_json: AsJson = False) -> None:
    """Copy a store into a file, also while it is in use.

    The copy is of one moment, and whole. The key that opens the bots' tokens is not in it: keep that apart.
    """
    back_up(store, target, as_json=as_json)


@app.command(epilog="[b]Then:[/b]  tidegate dlq replay --state parked --reason restored")
def restore(
    source: Source,
    *,
    park: Park = False,
    resend: Resend = False,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the store, while nothing uses it.

    What waited when the backup was made may have been delivered since: say --park or --resend. A store that
    is there already is kept beside it, with .before-restore after its name.
    """
    restore_backup(store, source, park=park, resend=resend, yes=yes, as_json=as_json)


# A group's number begins with a minus, and is no option.
@app.command(context_settings={"ignore_unknown_options": True})
def forget(
    chat: Chat, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Erase every message to a chat, waiting or ended. Asks first.

    What is being sent stays: run it again when that has ended. Backups are not touched.
    """
    from tidegate.cli import forget  # noqa: PLC0415  (keeps --help fast)

    forget.forget_chat(store, chat, bot=bot, yes=yes, as_json=as_json)


CHOOSE = (
    "what waited when the backup was made may have been delivered since: say --park to hold it back "
    "until you decide, or --resend to send it, perhaps a second time"
)


def back_up(store: str | None, target: str, *, as_json: bool) -> None:
    path = file_of(store)
    if not path.exists():
        raise BadInputError(f"there is no store at {shown_store(str(path))}: name it with --store")
    backups.back_up(path, Path(target))
    size = Path(target).stat().st_size
    if as_json:
        terminal.put_json({"store": str(path), "file": target, "bytes": size})
        return
    terminal.put_line(f"{path} is copied to {target}, {size:,} bytes.")
    terminal.put_line("The key that opens the bots' tokens is not in it: keep a copy of that elsewhere.")


def restore_backup(
    store: str | None, source: str, *, park: bool, resend: bool, yes: bool, as_json: bool
) -> None:
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
        confirm(f"Put {source} in the place of {path}? What is there is kept beside it.", yes=yes)
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
    with backups.ready_copy(source, store) as draft:
        parked = 0 if parked_at is None else backups.park_all(draft, parked_at)
        aside = backups.replace_store(draft, store)
    return {"parked": parked, "moved_to": None if aside is None else str(aside)}
