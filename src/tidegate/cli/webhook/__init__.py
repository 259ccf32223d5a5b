"""`tidegate webhook set`, `delete` and `info`."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
import typer

from tidegate.cli import loop, terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store, Yes, a_bots_number, command_group
from tidegate.cli.terminal import confirm
from tidegate.cli.webhook.calls import (
    BotOptions,
    Bots,
    WebhookCalls,
    base_of,
    find_bots,
    webhook_at,
    with_calls,
)
from tidegate.cli.webhook.report import ask, webhook_picture
from tidegate.delivery.sender import BotAccess
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.ops.webhook_state import without_token

app = command_group("Set, inspect and delete the webhooks of bots.")

Base = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="Public address of the bot, https://bots.example.org; /webhook/telegram/ID is added.",
    ),
]
OfBot = Annotated[
    int | None,
    typer.Option("--bot", metavar="ID", callback=a_bots_number, help="Only this bot; default: all."),
]
Connections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        min=1,
        max=100_000,
        metavar="N",
        help="Updates posted at once; Telegram's default: 40.",
    ),
]
Allowed = Annotated[
    str | None,
    typer.Option(
        "--allowed-updates",
        metavar="A,B",
        help='Only these kinds: message,callback_query; "" for Telegram\'s default. Not given: unchanged.',
    ),
]
DropPending = Annotated[
    bool, typer.Option("--drop-pending", help="Discard the updates that wait at Telegram. Asks first.")
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        metavar="URL",
        help="Your own Bot API server, for TELEGRAM_BOT_TOKEN; registered bots have theirs.",
    ),
]


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
    """Let Telegram post updates to ADDRESS from now on, instead of waiting for getUpdates.

    Applies to the bots registered in the store and to that of TELEGRAM_BOT_TOKEN. The secret that comes with
    each update is derived from the bot's token, so that every process can compute it. After a change of the
    token, set the webhook again.
    """
    wish = WebhookOptions(
        max_connections=max_connections, allowed_updates=allowed_updates, drop_pending=drop_pending
    )
    whose = BotOptions(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(set_webhooks(whose, address, wish, yes=yes, as_json=as_json))


@app.command(epilog="[b]Try it:[/b]  tidegate webhook info  ·  tidegate webhook info --bot 42 --json")
def info(*, bot: OfBot = None, api_url: ApiUrl = None, store: Store = None, as_json: AsJson = False) -> None:
    """Show where updates go, how many wait at Telegram, the last error, and what to do.

    Exits with 1 if something is wrong.
    """
    bots = find_bots(BotOptions(store=store, bot=bot, api_url=api_url))
    found = loop.run(with_calls(lambda telegram: ask(telegram, bots)))
    terminal.report({"webhooks": found}, *map(webhook_picture, found), as_json=as_json)
    raise typer.Exit(0 if all(each["is_well"] for each in found) else 1)


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
    """Go back to long polling. Updates that wait at Telegram stay there, unless they are dropped."""
    whose = BotOptions(store=store, bot=bot, api_url=api_url)
    raise typer.Exit(delete_webhooks(whose, drop_pending=drop_pending, yes=yes, as_json=as_json))


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
    """Read a list with commas. An unknown kind is only warned about: it may be newer than this version."""
    kinds = [kind for part in text.split(",") if (kind := part.strip())]
    for kind in kinds:
        if not _NAME.fullmatch(kind):
            raise BadInputError(
                f"--allowed-updates: {kind!r} is not a kind of update, such as message,callback_query"
            )
    unknown = ", ".join(kind for kind in kinds if kind not in KINDS)
    if unknown:
        terminal.note(f"tidegate: warning: unknown kinds of updates, which may never be sent: {unknown}")
    return kinds


Done = dict[str, Any]
Change = Callable[[WebhookCalls, int, BotAccess], Awaitable[Done]]


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `webhook set`. Those left out are unchanged at Telegram."""

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
    """Return the exit code: 1 if one could not be set."""
    base, params = base_of(address), wish.params()
    bots = find_bots(whose)
    if wish.drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(with_calls(lambda telegram: change(telegram, bots, setting(base, params))))
    return _report_changes(done, "{bot}:… gets its updates at {url}".format_map, as_json=as_json)


def delete_webhooks(whose: BotOptions, *, drop_pending: bool, yes: bool, as_json: bool) -> int:
    """Return the exit code: 1 if one could not be deleted."""
    bots = find_bots(whose)
    if drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(with_calls(lambda telegram: change(telegram, bots, deleting(drop_pending=drop_pending))))
    return _report_changes(done, _deleted, as_json=as_json)


def _deleted(done: Done) -> str:
    was, waiting = done["was"], amount(done["waiting"], "update")
    what = f"the webhook {was} is deleted" if was else "there was no webhook"
    left = "waits" if done["waiting"] == 1 else "wait"
    if not done["waiting"]:
        then = "no updates wait at Telegram"
    elif done.get("drop_pending_updates"):
        then = f"{waiting} that waited at Telegram {'was' if done['waiting'] == 1 else 'were'} dropped"
    else:
        then = f"{waiting} {left} at Telegram for long polling"
    return f"{done['bot']}:… {what}; {then}"


def setting(base: str, params: dict[str, Any]) -> Change:
    async def set_one(telegram: WebhookCalls, bot: int, access: BotAccess) -> Done:
        url, secret = webhook_at(base, bot), webhook_secret(access.token)
        await telegram.call(access, "setWebhook", {"url": url, "secret_token": secret, **params})
        return {"url": url}

    return set_one


def deleting(*, drop_pending: bool) -> Change:
    params = {"drop_pending_updates": True} if drop_pending else {}

    async def delete_one(telegram: WebhookCalls, _: int, access: BotAccess) -> Done:
        before: dict[str, Any] = {}
        with suppress(NotDeliveredError):  # it only tells what was there; the next call says what is wrong
            before = await telegram.call(access, "getWebhookInfo")
        await telegram.call(access, "deleteWebhook", params)
        was = without_token(str(before.get("url") or ""), access.token)
        return {"url": "", "was": was, "waiting": before.get("pending_update_count", 0), **params}

    return delete_one


async def change(telegram: WebhookCalls, bots: Bots, change_one: Change) -> list[Done]:
    """Change one bot after another. A failure is reported; of a single bot, it is raised."""
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
    if yes:
        return
    found = loop.run(with_calls(lambda telegram: ask(telegram, bots)))
    waiting = sum(each.get("waiting", 0) for each in found)
    if waiting:
        subject = amount(waiting, "update waits", "updates wait")
        confirm(f"{subject} at Telegram and would never be handled. Drop them for good?", yes=yes)


def _report_changes(done: list[Done], line: Callable[[Done], str], *, as_json: bool) -> int:
    failed = [each for each in done if each["error"] is not None]
    for each in failed:
        terminal.note(f"tidegate: {each['error']}")
    lines = (line(each) for each in done if each["error"] is None)
    terminal.report({"webhooks": done}, *lines, as_json=as_json)
    return 1 if failed else 0
