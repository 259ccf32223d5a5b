"""`tidegate backup`, `restore` and `forget`: what can be asked of a store as a whole. Only the options."""

from typing import Annotated

import typer

from tidegate.cli.options import AsJson, Store, Yes
from tidegate.cli.queue.commands import OfBot

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
    from tidegate.cli.copies import copying  # noqa: PLC0415  (keeps --help fast)

    copying.back_up(store, target, as_json=as_json)


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
    from tidegate.cli.copies import copying  # noqa: PLC0415  (keeps --help fast)

    copying.restore(store, source, park=park, resend=resend, yes=yes, as_json=as_json)


# A group's number begins with a minus, and is no option.
@app.command(context_settings={"ignore_unknown_options": True})
def forget(
    chat: Chat, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """Erase every message to a chat, waiting or ended. Asks first.

    What is being sent stays: run it again when that has ended. Backups are not touched.
    """
    from tidegate.cli.copies import forgetting  # noqa: PLC0415  (keeps --help fast)

    forgetting.forget(store, chat, bot=bot, yes=yes, as_json=as_json)
