"""`tidegate webhook set`, `delete` and `info`."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes, a_bots_number
from tidegate.cli.terminal import confirm
from tidegate.cli.times import distance
from tidegate.cli.webhook.calls import (
    BotOptions,
    Bots,
    WebhookCalls,
    base_of,
    find_bots,
    webhook_at,
    with_calls,
    without_token,
)
from tidegate.cli.webhook.verdict import judge
from tidegate.delivery.sender import BotAccess
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.inbound.webhook_app import webhook_secret

app = typer.Typer(help="Say where Telegram sends a bot's updates.")

Base = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="Where the bot can be reached, https://bots.example.org; /webhook/telegram/ID is added.",
    ),
]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="ID", callback=a_bots_number, help="This bot only; all if not given."),
]
Connections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        min=1,
        max=100_000,
        metavar="N",
        help="Updates posted at once; Telegram's usual: 40.",
    ),
]
Allowed = Annotated[
    str | None,
    typer.Option(
        "--allowed-updates",
        metavar="A,B",
        help='Only these kinds: message,callback_query. "" for the usual ones; as it was if not given.',
    ),
]
DropPending = Annotated[
    bool, typer.Option("--drop-pending", help="Throw away what waits at Telegram. Asks first.")
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="Of a Bot API server of your own, for TELEGRAM_BOT_TOKEN; registered bots have theirs.",
    ),
]


@app.callback(invoke_without_command=True)
def webhook(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    "set",
    epilog="[b]Try it:[/b]  tidegate webhook set https://bots.example.org  ·  tidegate webhook info",
)
def set_(
    address: Base,
    *,
    bot: OfBot = None,
    max_connections: Connections = None,
    allowed_updates: Allowed = None,
    drop_pending: DropPending = False,
    api_url: ApiUrl = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let Telegram post updates to ADDRESS, from now on, instead of waiting for getUpdates.

    For the bots that are registered in the store, and for that of TELEGRAM_BOT_TOKEN. The secret that comes
    with each update is made of the bot's token: every process knows it, and nothing has to be kept. After a
    token was changed, set the webhook again.
    """
    from tidegate.cli.webhook.calls import BotOptions  # noqa: PLC0415  (likewise)

    wish = WebhookOptions(
        max_connections=max_connections, allowed_updates=allowed_updates, drop_pending=drop_pending
    )
    whose = BotOptions(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(set_webhooks(whose, address, wish, yes=yes, as_json=as_json))


@app.command(epilog="[b]Try it:[/b]  tidegate webhook info  ·  tidegate webhook info --bot 42 --json")
def info(*, bot: OfBot = None, api_url: ApiUrl = None, store: Store = None, as_json: AsJson = False) -> None:
    """Ask Telegram where updates go, how many wait, and what went wrong last; say what to do.

    Ends with 1 if something is wrong.
    """
    from tidegate.cli.webhook.calls import BotOptions  # noqa: PLC0415  (likewise)

    raise typer.Exit(show(BotOptions(store=store, bot=bot, api_url=api_url), as_json=as_json))


@app.command(epilog="[b]Try it:[/b]  tidegate webhook delete --bot 42")
def delete(
    *,
    bot: OfBot = None,
    drop_pending: DropPending = False,
    api_url: ApiUrl = None,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Go back to long polling. What waits at Telegram stays there for whoever polls, unless it is dropped."""
    from tidegate.cli.webhook.calls import BotOptions  # noqa: PLC0415  (likewise)

    whose = BotOptions(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(delete_webhooks(whose, drop_pending=drop_pending, yes=yes, as_json=as_json))


Found = dict[str, Any]


def show(whose: BotOptions, *, as_json: bool) -> int:
    """The exit code: 1 if one of them is not well."""
    bots = find_bots(whose)
    found = loop.run(with_calls(lambda telegram: ask(telegram, bots)))
    if as_json:
        terminal.put_json({"webhooks": found})
    else:
        terminal.put(Group(*(webhook_picture(each) for each in found)))
    return 0 if all(each["is_well"] for each in found) else 1


async def ask(telegram: WebhookCalls, bots: Bots) -> list[Found]:
    """One bot after another; a failure stops no other. Of a bot alone it is raised: NotDeliveredError."""
    found: list[Found] = []
    for bot, access in sorted(bots.items()):
        try:
            about = await telegram.call(access, "getWebhookInfo")
        except NotDeliveredError as error:
            if len(bots) == 1:
                raise
            found.append({"bot": bot, "state": "unknown", "is_well": False, "verdict": str(error)})
        else:
            found.append(webhook_report(bot, access, about, telegram.now()))
    return found


def webhook_report(number: int, access: BotAccess, info: Mapping[str, Any], now: float) -> Found:
    """What may be shown: an address may hold a token, and so may what Telegram says of it."""
    verdict = judge(number, info, now)
    at, said = info.get("last_error_date"), info.get("last_error_message")
    return {
        "bot": number,
        "url": without_token(str(info.get("url") or ""), access.token),
        "waiting": info.get("pending_update_count", 0),
        "last_error": None if said is None else without_token(str(said), access.token),
        "last_error_at": at,
        "last_error_age": None if at is None else max(0.0, now - at),
        "max_connections": info.get("max_connections"),
        "allowed_updates": info.get("allowed_updates"),
        "state": verdict.state,
        "is_well": verdict.is_well,
        "verdict": verdict.text,
    }


def webhook_picture(found: Found) -> RenderableType:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("bot", Text(f"{found['bot']}:…", "bold"))
    for name, value in _rows(found):
        grid.add_row(name, Text(terminal.printable(value)))
    grid.add_row(
        "verdict", Text(terminal.printable(found["verdict"]), "green" if found["is_well"] else "red")
    )
    return Group(grid, "")


def _rows(found: Found) -> list[tuple[str, str]]:
    if "url" not in found:
        return []
    rows = [("address", found["url"] or "none"), ("waiting", f"{found['waiting']:,}")]
    if found["last_error"] is not None:
        age = found["last_error_age"]
        ago = "" if age is None else f" ({distance(0, age)})"
        rows.append(("last error", f"{found['last_error']}{ago}"))
    if found["max_connections"] is not None:
        rows.append(("connections", str(found["max_connections"])))
    kinds = found["allowed_updates"]
    rows.append(("updates", ", ".join(kinds) if kinds else "the usual kinds"))
    return rows


_NAME = re.compile(r"[a-z_]{3,40}")
KINDS: Final = frozenset({
    "message", "edited_message", "channel_post", "edited_channel_post",
    "business_connection", "business_message", "edited_business_message", "deleted_business_messages",
    "message_reaction", "message_reaction_count",
    "inline_query", "chosen_inline_result", "callback_query",
    "shipping_query", "pre_checkout_query", "purchased_paid_media",
    "poll", "poll_answer", "my_chat_member", "chat_member", "chat_join_request",
    "chat_boost", "removed_chat_boost",
})  # fmt: skip


def kinds_of(text: str) -> list[str]:
    """From a list with commas. One that is not known is only told: it may be newer than this."""
    kinds = [kind for part in text.split(",") if (kind := part.strip())]
    for kind in kinds:
        if not _NAME.fullmatch(kind):
            raise BadInputError(f"--allowed-updates: {kind!r} is no kind of update: message,callback_query")
    unknown = ", ".join(kind for kind in kinds if kind not in KINDS)
    if unknown:
        terminal.note(f"tidegate: warning: not known as a kind of update, and perhaps never sent: {unknown}")
    return kinds


Done = dict[str, Any]
Change = Callable[[WebhookCalls, int, BotAccess], Awaitable[Done]]


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is left out stays as it is at Telegram."""

    max_connections: int | None = None
    allowed_updates: str | None = None
    drop_pending: bool = False

    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = {}
        if self.max_connections is not None:
            params["max_connections"] = self.max_connections
        if self.allowed_updates is not None:
            params["allowed_updates"] = kinds_of(self.allowed_updates)
        if self.drop_pending:
            params["drop_pending_updates"] = True
        return params


def set_webhooks(whose: BotOptions, address: str, wish: WebhookOptions, *, yes: bool, as_json: bool) -> int:
    """The exit code: 1 if one could not be set."""
    base, params = base_of(address), wish.params()
    bots = find_bots(whose)
    if wish.drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(with_calls(lambda telegram: change(telegram, bots, setting(base, params))))
    return _report_changes(
        done, lambda each: f"{each['bot']}:… gets its updates at {each['url']}", as_json=as_json
    )


def delete_webhooks(whose: BotOptions, *, drop_pending: bool, yes: bool, as_json: bool) -> int:
    """Likewise."""
    bots = find_bots(whose)
    if drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(with_calls(lambda telegram: change(telegram, bots, deleting(drop_pending=drop_pending))))
    return _report_changes(
        done, lambda each: f"{each['bot']}:… has no webhook: it uses long polling", as_json=as_json
    )


def setting(base: str, params: dict[str, Any]) -> Change:
    async def set_one(telegram: WebhookCalls, bot: int, access: BotAccess) -> Done:
        url, secret = webhook_at(base, bot), webhook_secret(access.token)
        await telegram.call(access, "setWebhook", {"url": url, "secret_token": secret, **params})
        return {"url": url}

    return set_one


def deleting(*, drop_pending: bool) -> Change:
    params = {"drop_pending_updates": True} if drop_pending else {}

    async def delete_one(telegram: WebhookCalls, _: int, access: BotAccess) -> Done:
        await telegram.call(access, "deleteWebhook", params)
        return {"url": ""}

    return delete_one


async def change(telegram: WebhookCalls, bots: Bots, change_one: Change) -> list[Done]:
    """One bot after another; a failure is told and stops no other. Of a bot alone it is raised."""
    done: list[Done] = []
    for bot, access in sorted(bots.items()):
        try:
            made = await change_one(telegram, bot, access)
        except NotDeliveredError as error:
            if len(bots) == 1:
                raise
            made = {"error": str(error)}
        done.append({"bot": bot, "url": None, "error": None} | made)
    return done


def _ask_before_dropping(bots: Bots, *, yes: bool) -> None:
    """Outside an event loop, as every question."""
    if yes:
        return
    found = loop.run(with_calls(lambda telegram: ask(telegram, bots)))
    waiting = sum(each.get("waiting", 0) for each in found)
    if waiting:
        subject = amount(waiting, "update waits", "updates wait")
        confirm(f"{subject} at Telegram, and nobody has seen them. Drop them for good?", yes=yes)


def _report_changes(done: list[Done], line: Callable[[Done], str], *, as_json: bool) -> int:
    failed = [each for each in done if each["error"] is not None]
    if as_json:
        terminal.put_json({"webhooks": done})
    for each in done:
        if each["error"] is not None:
            terminal.note(f"tidegate: {each['error']}")
        elif not as_json:
            terminal.put_line(line(each))
    return 1 if failed else 0
