"""The commands. Whatever is slow to import is imported by the command that needs it."""

import inspect
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from tidegate.cli.backup import app as copies
from tidegate.cli.bot import app as bots
from tidegate.cli.broadcast.command import app as broadcast
from tidegate.cli.demo.command import app as demo
from tidegate.cli.dlq import app as dlq
from tidegate.cli.errors import UNREAD, check_arguments, complain, wants_traceback
from tidegate.cli.flow import app as flow
from tidegate.cli.inbox import app as inbox
from tidegate.cli.key import app as keys
from tidegate.cli.move import app as moving
from tidegate.cli.options import AsJson
from tidegate.cli.queue import app as queue
from tidegate.cli.send import app as sending
from tidegate.cli.sim.command import app as sim
from tidegate.cli.stress.command import app as stress
from tidegate.cli.webhook.command import app as webhook


def unwrap(command: Any) -> None:  # noqa: ANN401  (Typer does not export what a command is)
    """Make one line of each paragraph, here and in every command below: Rich would wrap it twice."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        unwrap(below)


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demo, name="demo")
app.add_typer(sim, name="sim")
app.add_typer(stress, name="stress")
app.add_typer(bots, name="bot")
app.add_typer(keys, name="key")
app.add_typer(sending)
app.add_typer(broadcast)
app.add_typer(webhook, name="webhook")
app.add_typer(inbox, name="inbox")
app.add_typer(queue, name="queue")
app.add_typer(dlq, name="dlq")
app.add_typer(copies)
app.add_typer(moving)
app.add_typer(flow, name="flow")


def run(arguments: Sequence[str] | None = None) -> int:
    """One command, with its errors as one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without box characters gets question marks
            stream.reconfigure(errors="replace")
    try:
        check_arguments(sys.argv[1:] if arguments is None else arguments)
        command = get_command(app)
        unwrap(command)
        code = command.main(arguments, prog_name="tidegate", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:  # whatever it is, a person gets one line
        if wants_traceback(error):
            raise
        return complain(error)
    except SystemExit:  # Rich's way when nobody reads any more
        return UNREAD
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:  # noqa: FBT001  (the way Typer calls back)
    if wanted:
        version()
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="[b]Try it:[/b]  tidegate demo  ·  tidegate sim telegram --latency 5-40  ·  tidegate doctor",
)
def tidegate(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is."),
    ] = False,
) -> None:
    """Stands between a Telegram bot and everything that limits it."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def version(*, as_json: AsJson = False) -> None:
    """Say which version this is, and which Python runs it."""
    from tidegate.cli import version as known  # noqa: PLC0415  (keeps --help fast)

    typer.echo(json.dumps(known.versions()) if as_json else known.line())


@app.command(epilog="[b]Try it:[/b]  REDIS_URL=redis://localhost:6379/0 tidegate doctor")
def doctor(*, as_json: AsJson = False) -> None:
    """Look whether this machine has what Tidegate needs, and say what to do.

    Looks at Python, the optional parts, Redis (TIDEGATE_STORE, REDIS_URL), the database (DATABASE_URL), ports
    and clocks.
    Ends with 1 if something failed.
    """
    from tidegate.cli.doctor.examination import examine  # noqa: PLC0415  (keeps --help fast)

    raise typer.Exit(examine(as_json=as_json))
