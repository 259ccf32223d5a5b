"""The state of webhooks: what Telegram knows of them, whether they work, and if not, what to do."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.times import distance, span
from tidegate.cli.webhook.calls import Bots, WebhookCalls, bot_at, without_token
from tidegate.delivery.sender import BotAccess
from tidegate.errors import NotDeliveredError

Found = dict[str, Any]


async def ask(telegram: WebhookCalls, bots: Bots) -> list[Found]:
    """Ask for one bot after another. A failure is reported; of a single bot, NotDeliveredError is raised."""
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
    """Build the report without tokens: an address may hold one, and so may Telegram's error text."""
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
    style = "green" if found["is_well"] else "red"
    grid.add_row("verdict", Text(terminal.printable(found["verdict"]), style))
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
    rows.append(("updates", ", ".join(kinds) if kinds else "Telegram's default kinds"))
    return rows


WebhookState = Literal["polling", "well", "elsewhere", "failing"]
RECENT_ERROR_SECONDS: Final = 3_600.0  # an older error does not concern the updates that wait now
MANY_WAITING: Final = 1_000  # updates that wait

# Words in Telegram's last error, and what to do. The first that matches counts.
_REMEDIES: Final = (
    ("401", "the secret is not that of this bot's token: run tidegate webhook set again"),
    ("403", "the secret is not that of this bot's token: run tidegate webhook set again"),
    (
        "404",
        "the server there does not know this address: check that it serves this bot, and the proxy",
    ),
    ("405", "the server there takes no POST: check that the proxy passes /webhook/ to the bot"),
    ("413", "a proxy refuses a body of that size: allow 1 MB"),
    ("429", "the bot's process is overloaded: check its log and /readyz"),
    ("502", "a proxy answers, but the bot behind it does not: check that it runs"),
    ("504", "a proxy answers, but the bot behind it does not in time: check its log"),
    ("503", "the bot's process cannot store updates now: check its log and /readyz"),
    ("500", "the bot's process failed: check its log"),
    ("refused", "nothing listens there: check that the bot runs and its port is open"),
    ("timed out", "nothing answers there: check the firewall, and what listens"),
    ("timeout", "the answer takes too long: check the bot's log and the load of its machine"),
    (
        "certificate",
        "the certificate is not accepted: serve the whole chain, and check that it has not expired",
    ),
    ("ssl", "TLS fails: check the certificate and its whole chain"),
    ("resolve", "the name is not known: check the DNS"),
)


class WebhookVerdict(NamedTuple):
    state: WebhookState
    text: str

    @property
    def is_well(self) -> bool:
        return self.state in {"polling", "well"}


def judge(bot: int, info: Mapping[str, Any], now: float) -> WebhookVerdict:
    """Judge the result of getWebhookInfo. `now` is in seconds since the epoch."""
    url, waiting = str(info.get("url") or ""), int(info.get("pending_update_count") or 0)
    if not url:
        rest = f"; {amount(waiting, 'update waits', 'updates wait')} for that" if waiting else ""
        return WebhookVerdict("polling", f"no webhook is set: the bot uses long polling{rest}")
    whose = bot_at(url)
    if whose is None:
        return WebhookVerdict(
            "elsewhere", "not an address of Tidegate: run tidegate webhook set to change it"
        )
    if whose != bot:
        return WebhookVerdict(
            "elsewhere", f"this is the address of bot {whose}: run tidegate webhook set --bot {bot}"
        )
    return _of_ours(info, waiting, now)


def _of_ours(info: Mapping[str, Any], waiting: int, now: float) -> WebhookVerdict:
    said, ago = str(info.get("last_error_message") or ""), now - float(info.get("last_error_date") or 0)
    if said and waiting and ago < RECENT_ERROR_SECONDS:
        return WebhookVerdict("failing", remedy(said))
    if waiting > MANY_WAITING:
        return WebhookVerdict(
            "failing", f"{waiting:,} updates wait: the bot handles fewer than arrive; check its log"
        )
    past = f"; the last error, {span(max(0.0, ago))} ago, is over" if said else ""
    return WebhookVerdict("well", f"updates arrive at this address{past}")


def remedy(said: str) -> str:
    lowered = said.lower()
    known = (advice for word, advice in _REMEDIES if word in lowered)
    return next(known, "check what answers at this address, and its log")
