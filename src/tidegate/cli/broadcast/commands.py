"""`tidegate broadcast`: only the options; the work is in the neighbours whose names begin so."""

from typing import Annotated, Literal

import typer

from tidegate.cli.options import AsJson, BotOption, Store

app = typer.Typer()

TEXT, LINES, SENDING = "Text", "Lines", "Sending"

File = Annotated[
    str, typer.Argument(metavar="FILE", help="CSV with a header, or JSON lines; - reads from stdin.")
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="TEMPLATE",
        rich_help_panel=TEXT,
        help="What to say: {name} is filled in from the line, {{ and }} are braces.",
    ),
]
TemplateFile = Annotated[
    str | None,
    typer.Option("--template", metavar="FILE", rich_help_panel=TEXT, help="Likewise, from a file."),
]
ParseMode = Annotated[
    Literal["HTML", "MarkdownV2"] | None,
    typer.Option(
        "--parse-mode",
        rich_help_panel=TEXT,
        help="How Telegram reads the text; what is filled in is escaped.",
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        rich_help_panel=TEXT,
        help="A parameter for all, as Telegram spells it, its value as JSON or else as text; repeatable.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", rich_help_panel=LINES, help="Send the good lines, though others are bad; needs --name."
    ),
]
AllowDuplicates = Annotated[
    bool,
    typer.Option(
        "--allow-duplicates", rich_help_panel=LINES, help="A chat in several lines gets several messages."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", rich_help_panel=LINES, help="Check everything, show a few, send nothing."),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        rich_help_panel=SENDING,
        help="What this broadcast is known by; its file, text and bot if not given.",
    ),
]
PriorityOption = Annotated[
    Literal["high", "normal", "low"],
    typer.Option("--priority", rich_help_panel=SENDING, help="They share 16 : 4 : 1."),
]
Remember = Annotated[
    str,
    typer.Option(
        "--remember",
        metavar="TIME",
        rich_help_panel=SENDING,
        help="For so long a second run sends nobody anything twice: 12h, 7d.",
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", rich_help_panel=SENDING, help="Put all into the store and leave it to a worker."
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE",
        rich_help_panel=SENDING,
        help="Write those it did not reach there, as CSV: chat_id, state, reason.",
    ),
]


@app.command(
    epilog='[b]Try it:[/b]  tidegate broadcast people.csv --text "Hello {name}" --dry-run'
    "  ·  tidegate broadcast news.jsonl"
)
def broadcast(
    file: File,
    *,
    text: Text = None,
    template: TemplateFile = None,
    parse_mode: ParseMode = None,
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
    is sent. The same command again goes on where it stopped, and sends nobody anything twice.
    """
    from tidegate.cli.broadcast import order as broadcast_order  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.broadcast import run as broadcast_run  # noqa: PLC0415  (keeps --help fast)

    order = broadcast_order.Order(
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
