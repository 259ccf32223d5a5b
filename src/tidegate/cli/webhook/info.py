"""`tidegate webhook info`."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.times import distance
from tidegate.cli.webhook.address import shown
from tidegate.cli.webhook.bots import Bots, Whose, find
from tidegate.cli.webhook.telegram import Telegram, asking
from tidegate.cli.webhook.verdict import judge
from tidegate.delivery.sender import BotAccess
from tidegate.errors import NotDeliveredError

Found = dict[str, Any]


def show(whose: Whose, *, as_json: bool) -> int:
    """The exit code: 1 if one of them is not well."""
    bots = find(whose)
    found = loop.run(asking(lambda telegram: ask(telegram, bots)))
    if as_json:
        terminal.put_json({"webhooks": found})
    else:
        terminal.put(Group(*(picture(each) for each in found)))
    return 0 if all(each["is_well"] for each in found) else 1


async def ask(telegram: Telegram, bots: Bots) -> list[Found]:
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
            found.append(report(bot, access, about, telegram.now()))
    return found


def report(number: int, access: BotAccess, info: Mapping[str, Any], now: float) -> Found:
    """What may be shown: an address may hold a token, and so may what Telegram says of it."""
    verdict = judge(number, info, now)
    at, said = info.get("last_error_date"), info.get("last_error_message")
    return {
        "bot": number,
        "url": shown(str(info.get("url") or ""), access.token),
        "waiting": info.get("pending_update_count", 0),
        "last_error": None if said is None else shown(str(said), access.token),
        "last_error_at": at,
        "last_error_age": None if at is None else max(0.0, now - at),
        "max_connections": info.get("max_connections"),
        "allowed_updates": info.get("allowed_updates"),
        "state": verdict.state,
        "is_well": verdict.is_well,
        "verdict": verdict.text,
    }


def picture(found: Found) -> RenderableType:
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
