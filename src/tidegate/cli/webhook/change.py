"""`tidegate webhook set` and `delete`."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidegate.cli import loop, terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.selection import amount
from tidegate.cli.webhook import info
from tidegate.cli.webhook.address import base_of, webhook_at
from tidegate.cli.webhook.bots import Bots, Whose, find
from tidegate.cli.webhook.kinds import kinds_of
from tidegate.cli.webhook.telegram import Telegram, asking
from tidegate.delivery.sender import BotAccess
from tidegate.errors import NotDeliveredError
from tidegate.inbound.secret import webhook_secret

Done = dict[str, Any]
Change = Callable[[Telegram, int, BotAccess], Awaitable[Done]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
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


def set_webhooks(whose: Whose, address: str, wish: Wish, *, yes: bool, as_json: bool) -> int:
    """The exit code: 1 if one could not be set."""
    base, params = base_of(address), wish.params()
    bots = find(whose)
    if wish.drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(asking(lambda telegram: change(telegram, bots, setting(base, params))))
    return _tell(done, lambda each: f"{each['bot']}:… gets its updates at {each['url']}", as_json=as_json)


def delete_webhooks(whose: Whose, *, drop_pending: bool, yes: bool, as_json: bool) -> int:
    """Likewise."""
    bots = find(whose)
    if drop_pending:
        _ask_before_dropping(bots, yes=yes)
    done = loop.run(asking(lambda telegram: change(telegram, bots, deleting(drop_pending=drop_pending))))
    return _tell(done, lambda each: f"{each['bot']}:… has no webhook: it uses long polling", as_json=as_json)


def setting(base: str, params: dict[str, Any]) -> Change:
    async def set_one(telegram: Telegram, bot: int, access: BotAccess) -> Done:
        url, secret = webhook_at(base, bot), webhook_secret(access.token)
        await telegram.call(access, "setWebhook", {"url": url, "secret_token": secret, **params})
        return {"url": url}

    return set_one


def deleting(*, drop_pending: bool) -> Change:
    params = {"drop_pending_updates": True} if drop_pending else {}

    async def delete_one(telegram: Telegram, _: int, access: BotAccess) -> Done:
        await telegram.call(access, "deleteWebhook", params)
        return {"url": ""}

    return delete_one


async def change(telegram: Telegram, bots: Bots, change_one: Change) -> list[Done]:
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
    found = loop.run(asking(lambda telegram: info.ask(telegram, bots)))
    waiting = sum(each.get("waiting", 0) for each in found)
    if waiting:
        subject = amount(waiting, "update waits", "updates wait")
        make_sure(f"{subject} at Telegram, and nobody has seen them. Drop them for good?", yes=yes)


def _tell(done: list[Done], line: Callable[[Done], str], *, as_json: bool) -> int:
    failed = [each for each in done if each["error"] is not None]
    if as_json:
        terminal.put_json({"webhooks": done})
    for each in done:
        if each["error"] is not None:
            terminal.note(f"tidegate: {each['error']}")
        elif not as_json:
            terminal.put_line(line(each))
    return 1 if failed else 0
