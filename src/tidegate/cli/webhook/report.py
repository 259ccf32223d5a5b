"""The state of webhooks as a command asks for it and shows it."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.times import distance
from tidegate.cli.webhook.calls import Bots, WebhookCalls
from tidegate.errors import NotDeliveredError
from tidegate.ops.webhook_state import WebhookReport, webhook_report


async def ask(telegram: WebhookCalls, bots: Bots) -> list[WebhookReport]:
    """Ask for one bot after another. A failure is reported; of a single bot, NotDeliveredError is raised."""
    found: list[WebhookReport] = []
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


def webhook_picture(found: WebhookReport) -> RenderableType:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("bot", Text(f"{found['bot']}:…", "bold"))
    for name, value in _rows(found):
        grid.add_row(name, Text(terminal.printable(value)))
    style = "green" if found["is_well"] else "red"
    grid.add_row("verdict", Text(terminal.printable(found["verdict"]), style))
    return Group(grid, "")


def _rows(found: WebhookReport) -> list[tuple[str, str]]:
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
    rows.append(("updates", ", ".join(kinds) if kinds else "Telegram's default kinds"))
    return rows
