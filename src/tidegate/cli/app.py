"""The table of commands. A command's module is imported only when that command is called."""

import importlib
import inspect
import json
import platform
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from tidegate.cli.errors import JSON_WRITTEN, UNREAD, check_arguments, complain, wants_json, wants_traceback
from tidegate.cli.options import AsJson
from tidegate.scrubber import scrub_secrets

# The module of each command, and what `tidegate --help` says of it: the first paragraph of its own help.
COMMANDS: Final = {
    "up": (
        "up",
        "Run API, worker, scheduler and webhooks in one process until Ctrl-C or SIGTERM.",
    ),
    "demo": ("demo", "Watch a naive bot and one with Tidegate do the same work side by side."),
    "sim": ("sim", "Simulate Telegram or NocoDB, with limits that count, to test bots against."),
    "simulate": ("simulate", "Simulate a day of a habit bot, and measure what its users get."),
    "stress": ("stress", "Put polling under simulated load and measure it."),
    "bot": ("bot", "Register, list and remove the bots of a store."),
    "key": ("key", "Make and rotate the keys that encrypt bot tokens."),
    "token": ("token", "Create, list and revoke the API tokens that let people and programs in."),
    "send": ("send", "Put one message into the store for a worker to deliver, and print its id."),
    "worker": ("worker", "Deliver the messages of the store until Ctrl-C or SIGTERM."),
    "gateway": ("gateway", "Speak the Bot API to bots in any language, until Ctrl-C or SIGTERM."),
    "api": ("api", "Serve the HTTP API until Ctrl-C or SIGTERM, beside the worker that delivers."),
    "broadcast": ("broadcast", "Send a message to everybody in a file, as fast as the limits allow."),
    "plan": ("plan", "Say when the last of many reminders leaves, and what would change that."),
    "reminders": ("reminders", "Import, list, change and remove reminders, which are sent when it is time."),
    "scheduler": ("scheduler", "Put reminders that are due into the outbox until Ctrl-C or SIGTERM."),
    "jobs": ("jobs", "List the jobs that bots have submitted; show, cancel and retry them."),
    "webhook": ("webhook", "Set, inspect and delete the webhooks of bots."),
    "inbox": ("inbox", "List updates and events that could not be handled; replay or drop them."),
    "queue": ("queue", "Say why messages wait; list, pause, resume and cancel them."),
    "limits": ("limits", "Show and set limits; show what is closed or slowed down, and open it."),
    "dlq": ("dlq", "List, replay and drop dead letters."),
    "history": ("history", "List, show and purge the messages in and out that were recorded."),
    "backup": ("backup", "Copy a store into a file, also while it is in use."),
    "restore": ("backup", "Replace the store by a backup, while no process uses it."),
    "forget": ("forget", "Erase every message to a chat, waiting or ended. Asks first."),
    "move": ("move", "Move everything from a file to Redis: what waits, in order, and what is remembered."),
    "database": ("database", "Show and upgrade the SQL database, which holds reminders and jobs."),
    "flow": ("flow", "Check, draw and play conversations that are declared as flows."),
    "profile": ("profile", "Watch a running Python process and write a flame graph of its time."),
    "docs": ("docs", "Open the documentation in a browser, or find pages by words."),
    "version": ("app", "Print the version of Tidegate and of Python."),
    "doctor": ("doctor", "Check that this machine has what Tidegate needs, and say what to do."),
}


class LazyGroup(TyperGroup):
    """Lists every command by its line in the table, and imports the one that is called."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  (Typer's)
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=text) for name, (_, text) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  (Typer's, not exported)
        if args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
            _hide_type_of_flags(self.commands[args[0]], ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401  (likewise)
        _hide_type_of_flags(self, ctx)
        return super().get_help(ctx)


def load_command(name: str) -> Any:  # noqa: ANN401  (Typer does not export what a command is)
    """Import a command. Each paragraph of its help becomes one line: Rich would wrap it twice otherwise."""
    found: Any = get_command(importlib.import_module(f"tidegate.cli.{COMMANDS[name][0]}").app)
    found = getattr(found, "commands", {}).get(name, found)  # a module may define several
    found.name = name
    _unwrap_help(found)
    return found


def _unwrap_help(command: Any) -> None:  # noqa: ANN401  (likewise)
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _unwrap_help(below)


def _hide_type_of_flags(command: Any, ctx: Any) -> None:  # noqa: ANN401  (likewise)
    """Show `--json` in the help of this command and those below, not `--json <bool>`: it takes no value."""
    for parameter in command.get_params(ctx):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _hide_type_of_flags(below, ctx)


tidegate = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app = typer.Typer(add_completion=False)  # the commands that are defined here


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error is printed as one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without box characters gets question marks
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else arguments
    JSON_WRITTEN.clear()
    try:
        check_arguments(given)
        code = get_command(tidegate).main(arguments, prog_name="tidegate", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001  (a person gets one line, whatever it is)
        if wants_traceback(error):
            sys.stderr.write(scrub_secrets(traceback.format_exc()))
        return complain(error, as_json=wants_json(given))
    except SystemExit:  # raised by Rich when the reader of a pipe has gone
        return UNREAD
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:  # noqa: FBT001  (called by Typer)
    if wanted:
        version()
        raise typer.Exit


@tidegate.callback(
    invoke_without_command=True,
    epilog="[b]Try it:[/b]  tidegate up  ·  tidegate demo  ·  tidegate doctor",
)
def main(
    context: typer.Context,
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Stands between a Telegram bot and everything that limits it."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def version(*, as_json: AsJson = False) -> None:
    """Print the version of Tidegate and of Python."""
    from importlib.metadata import version as installed_version  # noqa: PLC0415  (slow to import)

    known = {"version": installed_version("tidegate"), "python": platform.python_version()}
    typer.echo(json.dumps(known) if as_json else f"tidegate {known['version']} (Python {known['python']})")
