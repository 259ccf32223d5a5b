"""`tidegate send` and `tidegate worker`: only the options; the work is in the neighbours."""

import re
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from tidegate.cli.options import AsJson, BotOption, Store

app = typer.Typer()

MESSAGE, WHEN, WAITING = "Message", "When", "Waiting"
_GROUP = re.compile(r"-\d+")

Chat = Annotated[str, typer.Argument(metavar="CHAT", help="A number (groups have one below 0) or @name.")]
Text = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="What to say; the caption of a file; - reads it from stdin."),
]
PriorityOption = Annotated[
    Literal["high", "normal", "low"],
    typer.Option("--priority", rich_help_panel=WHEN, help="They share 16 : 4 : 1."),
]
Method = Annotated[
    str | None,
    typer.Option("--method", metavar="NAME", rich_help_panel=MESSAGE, help="Another than sendMessage."),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        rich_help_panel=MESSAGE,
        help="A parameter as Telegram spells it, its value as JSON or else as text; repeatable.",
    ),
]
Photo = Annotated[
    str | None,
    typer.Option("--photo", metavar="FILE", rich_help_panel=MESSAGE, help="A file, a file_id or an address."),
]
Document = Annotated[
    str | None,
    typer.Option("--document", metavar="FILE", rich_help_panel=MESSAGE, help="Likewise."),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", rich_help_panel=WHEN, help="Not before: 18:30, or 2030-01-31T18:30 (+02:00)."
    ),
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="SECONDS", rich_help_panel=WHEN, help="Not before so long: 90, 30m, 2h."),
]
DedupKey = Annotated[
    str | None,
    typer.Option(
        "--dedup-key",
        metavar="KEY",
        rich_help_panel=WHEN,
        help="Once only: within a day, the same key sends nothing and gives the first id.",
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", rich_help_panel=WAITING, help="Until it is delivered; 1 if it is not.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.0, rich_help_panel=WAITING, help="Wait so long at most."
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Calls at once, at most.")]
Drain = Annotated[bool, typer.Option("--drain", help="End when nothing waits any more.")]


class TakesChats(TyperCommand):
    """A group's number, -1001234, is not mistaken for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (Typer's own, not exported)
        # A space before it is enough, and is stripped where the value is read.
        return super().parse_args(ctx, [f" {arg}" if _GROUP.fullmatch(arg) else arg for arg in args])


@app.command(
    cls=TakesChats,
    epilog='[b]Try it:[/b]  tidegate send 1001 "Hello"'
    '  ·  tidegate send @channel "Look" --photo cat.jpg --at 18:30',
)
def send(
    chat: Chat,
    text: Text = None,
    *,
    bot: BotOption = None,
    priority: PriorityOption = "normal",
    method: Method = None,
    param: Params = None,
    photo: Photo = None,
    document: Document = None,
    at: At = None,
    delay: In = None,
    dedup_key: DedupKey = None,
    wait: Wait = False,
    timeout: Timeout = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Put one message into the store, for a worker to deliver. Says its id, once the store has it."""
    from tidegate.cli.sending import fields as send_fields  # noqa: PLC0415  (keeps --help fast)
    from tidegate.cli.sending import one as send_one  # noqa: PLC0415  (keeps --help fast)

    wanted = send_fields.Wanted(
        chat=chat,
        text=text,
        method=method,
        params=param or [],
        photo=photo,
        document=document,
        at=at,
        delay=delay,
    )
    send_one.send(
        store,
        wanted,
        {"bot": bot, "priority": priority, "dedup_key": dedup_key},
        wait=wait or timeout is not None,
        timeout=timeout,
        as_json=as_json,
    )


@app.command(epilog="[b]Try it:[/b]  tidegate worker  ·  tidegate worker --drain --json")
def worker(
    *, concurrency: Concurrency = 100, drain: Drain = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Deliver what is in the store, and what comes, until Ctrl-C or SIGTERM.

    Then it finishes what is in flight; what waits stays in the store. A file has one worker at a time; in
    Redis any number share the work and the limits.
    """
    from tidegate.cli.sending import deliver  # noqa: PLC0415  (keeps --help fast)

    deliver.deliver(store, concurrency=concurrency, drain=drain, as_json=as_json)
