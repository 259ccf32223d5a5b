"""`tidegate move`: only the options; the work is in the neighbours."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson

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
    from tidegate.cli.move import run  # noqa: PLC0415  (keeps --help fast)

    raise typer.Exit(run.move(source, target, dry_run=dry_run, as_json=as_json))
