"""`tidegate broadcast`: its options. Whatever can be refused at once is refused here."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
from typer.core import TyperGroup

from tidegate.broadcast.audience_file import AudienceFile, Mailing
from tidegate.cli.broadcast.report import check_place
from tidegate.cli.options import AsJson, BotOption, Store
from tidegate.cli.send import shared_params
from tidegate.cli.store import store_name
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.outbox.message_times import duration
from tidegate.templates import ParseMode


class DefaultRun(TyperGroup):
    """`tidegate broadcast FILE` is `tidegate broadcast run FILE`. A file called `list` is written ./list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (Typer's, not exported)
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DefaultRun,
    add_completion=False,
    help="Send a message to everybody in a file, as fast as the limits allow.\n\n"
    "tidegate broadcast FILE is short for tidegate broadcast run FILE. The other commands are for every "
    "broadcast of the store, also those of gate.broadcast.",
)


@app.callback(invoke_without_command=True)
def show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


TEXT, LINES, SENDING = "Text", "Lines", "Sending"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV with a header, a chat in each line, or JSON lines; - reads from stdin."
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="TEMPLATE",
        rich_help_panel=TEXT,
        help="The text: {name} is a field of the line, {{ and }} are braces.",
    ),
]
TemplateFile = Annotated[
    str | None,
    typer.Option("--template", metavar="FILE", rich_help_panel=TEXT, help="The text, from a file."),
]
ParseModeOption = Annotated[
    Literal["HTML", "MarkdownV2"] | None,
    typer.Option(
        "--parse-mode",
        rich_help_panel=TEXT,
        help="How Telegram reads the text; values of fields are escaped.",
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        rich_help_panel=TEXT,
        help="A parameter for all messages; the value is JSON, or else text; repeatable.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", rich_help_panel=LINES, help="Send the good lines even if others are bad; needs --name."
    ),
]
AllowDuplicates = Annotated[
    bool,
    typer.Option(
        "--allow-duplicates",
        rich_help_panel=LINES,
        help="Send several messages to a chat that is in several lines.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", rich_help_panel=LINES, help="Check everything, show a few messages, send nothing."
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        rich_help_panel=SENDING,
        help="Name of the broadcast; default: derived from its file, text and bot.",
    ),
]
PriorityOption = Annotated[
    Literal["high", "normal", "low"],
    typer.Option("--priority", rich_help_panel=SENDING, help="The three share the limits 16 : 4 : 1."),
]
Remember = Annotated[
    str,
    typer.Option(
        "--remember",
        metavar="TIME",
        rich_help_panel=SENDING,
        help="How long a second run sends nobody anything twice: 12h, 7d.",
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", rich_help_panel=SENDING, help="Put all into the store and leave the sending to a worker."
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE",
        rich_help_panel=SENDING,
        help="Write those it did not reach into this CSV file: chat_id, state, reason.",
    ),
]


@app.command(
    "run",
    epilog='[b]Try it:[/b]  tidegate broadcast people.csv --text "Hello {name}" --dry-run'
    "  ·  tidegate broadcast news.jsonl",
)
def broadcast(
    file: File,
    *,
    text: Text = None,
    template: TemplateFile = None,
    parse_mode: ParseModeOption = None,
    param: Params = None,
    skip_bad: SkipBad = False,
    allow_duplicates: AllowDuplicates = False,
    dry_run: DryRun = False,
    name: Name = None,
    priority: PriorityOption = "low",
    remember: Remember = "7d",
    no_wait: NoWait = False,
    report: Report = None,
    bot: BotOption = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Send a message to everybody in a file, as fast as the limits allow.

    The file has a field chat_id, and text unless a template is given. Every line is checked before anything
    is sent. Run the same command again to resume: it goes on with those who have no message yet.
    """
    from tidegate.cli.broadcast import run as broadcast_run  # noqa: PLC0415  (imports this module)

    order = BroadcastOrder(
        file=file,
        text=text,
        template=template,
        parse_mode=parse_mode,
        params=param or [],
        skip_bad=skip_bad,
        allow_duplicates=allow_duplicates,
        dry_run=dry_run,
        name=name,
        priority=priority,
        remember=remember,
        wait=not no_wait,
        report=report,
        bot=bot,
        store=store,
        as_json=as_json,
    )
    raise typer.Exit(broadcast_run.run(order))


_NAME = re.compile(r"[\w.-]{1,64}")
_ELSEWHERE: Final = {
    "text": "use --text, --template or a field text",
    "parse_mode": "use --parse-mode",
    "dedup_for": "use --remember",
}


class BroadcastOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command, as they were written."""

    file: str
    text: str | None = None
    template: str | None = None
    parse_mode: ParseMode | None = None
    params: list[str] = []
    skip_bad: bool = False
    allow_duplicates: bool = False
    dry_run: bool = False
    name: str | None = None
    priority: Literal["high", "normal", "low"] = "low"
    remember: str = "7d"
    wait: bool = True
    report: str | None = None
    bot: int | None = None
    store: str | None = None
    as_json: bool = False

    def check(self) -> None:
        """Raise BadInputError that names a bad option."""
        self.remembered()
        if self.text is not None and self.template is not None:
            raise BadInputError("--text and --template exclude each other: give one of them")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise BadInputError(
                f"--name: {self.name!r} is not a name: write up to 64 letters, digits, dots and dashes"
            )
        if self.report is not None:
            read = [self.file, *([self.template] if self.template is not None else [])]
            store = store_name(self.store)
            check_place(Path(self.report), read=read, store=store)

    def remembered(self) -> float:
        """Return --remember in seconds."""
        seconds = duration("--remember", self.remember)
        if seconds <= 0:
            raise BadInputError("--remember: give more than 0")
        return seconds

    def mailing(self, source: AudienceFile) -> Mailing:
        option = "--text" if self.text is not None else "--template"
        try:
            return Mailing(
                source,
                template=self._template(),
                parse_mode=self.parse_mode,
                params=self._params(),
                duplicates=self.allow_duplicates,
                now=Clock().now(),
            )
        except BadInputError as error:
            text = str(error)
            raise BadInputError(text if text.startswith("--") else f"{option}: {text}") from error

    def _params(self) -> dict[str, Any]:
        return shared_params(self.params, _ELSEWHERE)

    def _template(self) -> str | None:
        if self.template is None:
            _check_unicode(self.text or "")
            return self.text
        try:
            return Path(self.template).read_text("utf-8-sig").rstrip("\n")
        except UnicodeDecodeError:
            raise BadInputError(f"{self.template} is not written in UTF-8: save it as UTF-8") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise BadInputError(f"cannot read {self.template}: {reason.lower()}") from error


def _check_unicode(text: str) -> None:
    """Raise BadInputError for bytes that are not UTF-8: arguments hold them as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError("the text is not valid UTF-8: write it into a file, for --template") from None


from tidegate.cli.broadcast import control, missed  # noqa: E402, F401  (add their commands to the group)
