"""Telegram's report of a bot's webhook, judged: whether updates arrive, and if not, what to do. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from tidegate.delivery.sender import BotAccess
from tidegate.failure import scrub

WebhookReport = dict[str, Any]
PATH: Final = "/webhook/telegram"  # and the bot's number


def bot_at(url: str) -> int | None:
    """Return the bot that a webhook address of Tidegate is for; None for other addresses."""
    match = re.search(rf"{PATH}/(\d{{1,16}})$", url)
    return int(match[1]) if match else None


def without_token(text: str, token: str) -> str:
    """Remove the token from a text: many bots have it in their webhook's address."""
    secret = token.partition(":")[2]
    for known in (token, quote(token, safe=""), secret):
        text = text.replace(known, "…")
    return scrub(text)


def webhook_report(number: int, access: BotAccess, info: Mapping[str, Any], now: float) -> WebhookReport:
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
        waits = "update waits" if waiting == 1 else "updates wait"
        rest = f"; {waiting:,} {waits} for that" if waiting else ""
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
    past = "; the last error is over" if said else ""
    return WebhookVerdict("well", f"updates arrive at this address{past}")


def remedy(said: str) -> str:
    lowered = said.lower()
    known = (advice for word, advice in _REMEDIES if word in lowered)
    return next(known, "check what answers at this address, and its log")
