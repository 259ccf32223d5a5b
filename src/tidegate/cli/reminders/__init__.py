"""`tidegate reminders import`: its options. Whatever can be refused at once is refused here."""

from typing import Annotated, Any

import msgspec
import typer

from tidegate.cli.options import AsJson, BotOption, Store, command_group
from tidegate.cli.reminders.options import (
    LINES,
    MESSAGE,
    At,
    Count,
    Cron,
    Date,
    Days,
    Every,
    ExpiresIn,
    Handler,
    Late,
    Params,
    ParseModeOption,
    Quiet,
    SpreadOption,
    SpreadOrderOption,
    Start,
    Until,
    Zone,
    given_options,
    message_params,
)

app = command_group("Import, list, change and remove reminders, which are sent when it is time.")

File = Annotated[
    str, typer.Argument(metavar="FILE", help="CSV with a header, or JSON lines; - reads from stdin.")
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="TEMPLATE",
        rich_help_panel=MESSAGE,
        help="The text of lines without one: {name} is a field of the line, {{ and }} are braces.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="TEMPLATE",
        rich_help_panel=LINES,
        help="What a reminder is known by, as water-{chat_id}: imported again, it is replaced.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", rich_help_panel=LINES, help="Import the good lines even if others are bad."),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", rich_help_panel=LINES, help="Check everything, show a few reminders, import nothing."
    ),
]


class ImportOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command. `defaults` are of the reminders, for what a line does not say."""

    file: str
    defaults: dict[str, Any]
    key: str | None = None
    skip_bad: bool = False
    dry_run: bool = False
    bot: int | None = None
    store: str | None = None
    as_json: bool = False


@app.command(
    "import",
    epilog="[b]Try it:[/b]  tidegate reminders import people.csv --text 'Drink, {name}!' --at 09:00"
    " --every day --zone Europe/Berlin --dry-run",
)
def import_(
    file: File,
    *,
    text: Text = None,
    parse_mode: ParseModeOption = None,
    param: Params = None,
    handler: Handler = None,
    at: At = None,
    every: Every = None,
    days: Days = None,
    cron: Cron = None,
    date: Date = None,
    zone: Zone = None,
    spread: SpreadOption = None,
    spread_order: SpreadOrderOption = None,
    quiet: Quiet = None,
    start: Start = None,
    until: Until = None,
    count: Count = None,
    late: Late = None,
    expires_in: ExpiresIn = None,
    key: Key = None,
    skip_bad: SkipBad = False,
    dry_run: DryRun = False,
    bot: BotOption = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Import reminders from a file.

    It has a field chat_id. The options are for all lines: a field of the same name, such as at, days or zone,
    says otherwise for its line. Every line is checked before anything is stored. Run the same command again
    after Ctrl-C, or when lines were added: what is stored already is left as it is.
    """
    from tidegate.cli.reminders import importer  # noqa: PLC0415  (slow to import, and imports this module)

    defaults: dict[str, Any] = message_params(param)
    defaults |= given_options(
        at=at,
        every=every,
        days=days,
        cron=cron,
        date=date,
        zone=zone,
        spread=spread,
        spread_order=spread_order,
        quiet=quiet,
        start=start,
        until=until,
        count=count,
        late=late,
        expires_in=expires_in,
        handler=handler,
        text=text,
        parse_mode=parse_mode,
    )
    order = ImportOrder(
        file=file,
        defaults=defaults,
        key=key,
        skip_bad=skip_bad,
        dry_run=dry_run,
        bot=bot,
        store=store,
        as_json=as_json,
    )
    raise typer.Exit(importer.run(order))


from tidegate.cli.reminders import control  # noqa: E402, F401  (adds its commands to the group)
