"""`tidegate token`: the API tokens. A secret is shown once, when its token is created."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.database import database_beside
from tidegate.cli.messages import amount, bot_of
from tidegate.cli.options import AsJson, Store, a_bots_number, command_group
from tidegate.cli.reminders.options import naming_the_database
from tidegate.cli.store import Result, quietly, store_name
from tidegate.cli.terminal import printable
from tidegate.cli.times import distance, short_moment
from tidegate.clock import Clock
from tidegate.database import make_access, tables_exist
from tidegate.errors import BadInputError
from tidegate.ops.access import COMMAND_LINE, AccessControl, NewToken, Role, TokenRecord
from tidegate.outbox.message_times import duration
from tidegate.settings import Settings

app = command_group("Create, list and revoke the API tokens that let people and programs in.")

NONE: Final = "No token. Create one with tidegate token create --name ci --role operator"
LARGEST_ID: Final = 2**63 - 1
STYLES: Final = {Role.ADMIN: "bold yellow", Role.OPERATOR: "cyan", Role.VIEWER: ""}

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Who uses it: it is named in the audit log.")
]
RoleOption = Annotated[
    Role,
    typer.Option(
        "--role", help="viewer: numbers and states; operator: texts, too, and sends; admin: everything."
    ),
]
Scope = Annotated[
    int | None,
    typer.Option("--bot", metavar="N", callback=a_bots_number, help="The only bot that it may see and use."),
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Refuse it after: 90d, 12h. Default: never.")
]
All = Annotated[bool, typer.Option("--all", help="Also those that are revoked or have expired.")]
Id = Annotated[int, typer.Argument(metavar="ID", help="As shown by token list.")]


@app.command(epilog="[b]Try it:[/b]  tidegate token create --name ci --role operator --bot 42 --expires 90d")
def create(
    *,
    name: Name,
    role: RoleOption = Role.VIEWER,
    bot: Scope = None,
    expires: Expires = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Create an API token, and print its secret: this once, alone on its line.

    The database keeps a hash of it. Whoever has the secret has its rights: keep it as you keep passwords.
    """
    expires_in = None if expires is None else duration("--expires", expires)

    async def act(access: AccessControl) -> NewToken:
        made = await access.create_token(name, role, bot_of(bot), expires_in)
        token = made.record
        await access.note(COMMAND_LINE, "token.create", bot=token.bot, target=token.id, detail=_rights(token))
        return made

    made = _using_access(store, act)
    token = made.record
    terminal.note(f"Token {token.id} ({token.name}): {_rights(token)}. Its secret, shown this once:")
    terminal.report_secret(token_json(token), "secret", made.secret, as_json=as_json)


@app.command("list")
def list_(*, everything: All = False, store: Store = None, as_json: AsJson = False) -> None:
    """List the API tokens: their rights, when they expire, and when they were last used. Never a secret."""
    tokens = _if_any(store, lambda access: access.tokens()) or []
    now = Clock().now()
    shown = [token for token in tokens if everything or token.is_usable(now)]
    hidden = len(tokens) - len(shown)
    empty = "No token can be used." if tokens else NONE
    lines: list[RenderableType] = [token_table(shown, now) if shown else empty]
    if hidden:
        others = amount(hidden, "token is", "tokens are")
        lines.append(Text(f"{others} revoked or expired: --all", style="dim"))
    found = {"tokens": [token_json(token) for token in shown], "hidden": hidden}
    terminal.report(found, *lines, as_json=as_json)


@app.command()
def revoke(token_id: Id, *, store: Store = None, as_json: AsJson = False) -> None:
    """Refuse a token from now on, and end its sessions. Processes that run refuse it within 10 s."""
    if not 0 < token_id <= LARGEST_ID:
        raise BadInputError("ids of tokens are 1 or more, as shown by tidegate token list")

    async def act(access: AccessControl) -> tuple[TokenRecord | None, bool]:
        token = next((one for one in await access.tokens() if one.id == token_id), None)
        revoked = token is not None and await access.revoke_token(token_id)
        if token is not None and revoked:
            await access.note(COMMAND_LINE, "token.revoke", bot=token.bot, target=token.id, detail=token.name)
        return token, revoked

    token, revoked = _if_any(store, act) or (None, False)
    if token is None:
        raise BadInputError(f"there is no token {token_id}: see tidegate token list --all")
    done = "is revoked" if revoked else "was revoked before"
    line = f"Token {token.id} ({printable(token.name)}, {token.prefix}…) {done}."
    terminal.report({"id": token.id, "name": token.name, "revoked": revoked}, line, as_json=as_json)


def token_json(token: TokenRecord) -> dict[str, Any]:
    return msgspec.structs.asdict(token) | {"role": str(token.role)}


def token_table(tokens: Sequence[TokenRecord], now: float) -> Table:
    """Show one row each. In a terminal of 80 columns the names are cut short."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in ("id", "role", "bot", "token", "expires", "last used"):
        rows.add_column(title, no_wrap=True)
    rows.add_column("name", no_wrap=True, overflow="ellipsis")
    for token in tokens:
        rows.add_row(
            str(token.id),
            Text(token.role, STYLES[token.role]),
            "all" if token.bot is None else f"{token.bot}:…",
            f"{token.prefix}…",
            _expiry(token, now),
            "never" if token.last_used_at is None else short_moment(token.last_used_at, now),
            Text(printable(token.name)),
        )
    return rows


def _expiry(token: TokenRecord, now: float) -> Text:
    if token.revoked_at is not None:
        return Text(f"revoked {distance(token.revoked_at, now)}", style="red")
    if token.expires_at is None:
        return Text("never")
    return Text(distance(token.expires_at, now), style="" if token.is_usable(now) else "red")


def _rights(token: TokenRecord) -> str:
    whose = "all bots" if token.bot is None else f"bot {token.bot}"
    until = "" if token.expires_at is None else f", expires {distance(token.expires_at, token.created_at)}"
    return f"{token.role}, {whose}{until}"


def _using_access(store: str | None, work: Callable[[AccessControl], Awaitable[Result]]) -> Result:
    """Run `work` on the database beside the store, which is made if there is none."""
    database = database_beside(store)

    async def opened() -> Result:
        access = AccessControl(lambda: make_access(lambda: database), Clock())
        try:
            return await work(access)
        finally:
            await access.close()
            await database.close()

    with naming_the_database(), quietly():
        return loop.run(opened())


def _if_any(store: str | None, work: Callable[[AccessControl], Awaitable[Result]]) -> Result | None:
    """Run `work` if there may be tokens: looking at them creates no database."""

    async def look(access: AccessControl) -> Result | None:
        exist = await tables_exist(store_name(store), Settings.read(), Clock())
        return await work(access) if exist else None

    return _using_access(store, look)
