"""`tidegate backup` and `tidegate restore`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.store import file_of, public_store_name
from tidegate.cli.terminal import confirm
from tidegate.clock import Clock
from tidegate.database import data_file
from tidegate.errors import BadInputError
from tidegate.settings import Settings
from tidegate.stores.sqlite.backups import back_up, check_absent, check_backup, restore_backup

app = typer.Typer(add_completion=False)

Target = Annotated[str, typer.Argument(metavar="FILE", help="The file to write; must not exist yet.")]
Source = Annotated[str, typer.Argument(metavar="FILE", help="A file that tidegate backup wrote.")]
Park = Annotated[
    bool, typer.Option("--park", help="Park the messages that waited at the time, until an operator decides.")
]
Resend = Annotated[
    bool, typer.Option("--resend", help="Send the messages that waited at the time, perhaps a second time.")
]

CHOOSE: Final = (
    "messages that waited when the backup was made may have been delivered since: pass --park to hold them "
    "back until you decide, or --resend to send them, perhaps a second time"
)


@app.command()
def backup(target: Target, *, store: Store = None, as_json: AsJson = False) -> None:
    """Copy a store into a file, also while it is in use.

    The copy is consistent: the state of one moment. It does not contain the key that decrypts the bots'
    tokens: keep that elsewhere. Reminders and jobs, in the file beside the store, are copied into one beside
    FILE.
    """
    path = file_of(store)
    if not path.exists():
        raise BadInputError(f"there is no store at {public_store_name(str(path))}: name it with --store")
    data = reminders_file(path)
    copy = None if data is None else data_file(target)
    if copy is not None:
        check_absent(copy)
    back_up(path, Path(target))
    size = Path(target).stat().st_size
    lines = [f"{path} is copied to {target}, {size:,} bytes."]
    if data is not None and copy is not None:
        back_up(data, copy, any_database=True)
        lines.append(f"{data}, with reminders and jobs, is copied to {copy}.")
    terminal.report(
        {"store": str(path), "file": target, "bytes": size, "reminders": None if copy is None else str(copy)},
        *lines,
        "The key that decrypts the bots' tokens is not in it: keep a copy of the key elsewhere.",
        as_json=as_json,
    )


def reminders_file(store: Path) -> Path | None:
    """Return the file beside a store with its reminders and jobs; None if there are none, or elsewhere."""
    file = None if Settings.read().database_url is not None else data_file(str(store))
    return file if file is not None and file.is_file() else None


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
    """Replace the store by a backup, while no process uses it.

    Messages that waited when the backup was made may have been delivered since: pass --park or --resend. The
    present store is kept beside it, with .before-restore after its name.
    """
    named = file_of(store)
    path = named.resolve()  # a link to a store stays a link
    if park and resend:
        raise BadInputError("--park and --resend contradict each other: pass one of them")
    if not park and not resend:
        raise BadInputError(CHOOSE)
    if Path(source).resolve() == path:
        raise BadInputError(f"{source} is the store itself: give a backup of it")
    if not path.parent.is_dir():
        raise BadInputError(f"there is no folder {path.parent}: make it, or name another store with --store")
    check_backup(Path(source))
    if path.exists():
        confirm(f"Replace {path} by {source}? The present store is kept beside it.", yes=yes)
    parked, aside = loop.run(restore_backup(named, path, Path(source), Clock(), park=park))
    lines = [f"{source} is now the store {path}."]
    if aside is not None:
        lines.append(f"The store that was there is now {aside}")
    if park:
        lines.append(f"Parked {amount(parked, 'message')} that waited.")
    copy = data_file(source)
    if copy is not None and copy.is_file():
        lines.append(
            f"Reminders and jobs stay as they are. To go back to those of {copy}: stop everything, move"
            f" {data_file(str(path))}* away, and copy it there; what was due since then fires late,"
            " and jobs that have ended since then run again."
        )
    if parked:
        lines.append("Next: tidegate dlq list --state parked --reason restored; then replay or drop")
    found = {"store": str(path), "parked": parked, "moved_to": None if aside is None else str(aside)}
    terminal.report(found, *lines, as_json=as_json)
