"""What Telegram knows of a webhook, in plain words: is it well, and if not, what is to be done. Pure."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from tidegate.cli.messages import amount
from tidegate.cli.times import span
from tidegate.cli.webhook.calls import bot_at

State = Literal["polling", "well", "elsewhere", "failing"]
RECENT_ERROR_SECONDS: Final = 3_600.0  # seconds: what failed longer ago is not what waits now
MANY_WAITING: Final = 1_000  # updates that wait

# What Telegram says of its last attempt, and what to do. The first that fits.
_REMEDIES: Final = (
    ("401", "the secret is not that of this bot's token: tidegate webhook set once more"),
    ("403", "the secret is not that of this bot's token: tidegate webhook set once more"),
    (
        "404",
        "whoever answers there knows no such address: is this bot served, and does the proxy pass /webhook/?",
    ),
    ("405", "whoever answers there takes no POST: does the proxy pass /webhook/ to the bot?"),
    ("413", "a proxy takes no body of that size: allow 1 MB"),
    ("429", "the bot's process has no room: look at its log and at /readyz"),
    ("502", "a proxy answers, but the bot behind it does not: is it running?"),
    ("504", "a proxy answers, but the bot behind it does not in time: look at its log"),
    ("503", "the bot's process cannot hold updates now: look at its log and at /readyz"),
    ("500", "the bot's process failed: look at its log"),
    ("refused", "nobody listens there: is the bot running, and its port open?"),
    ("timed out", "nobody answers there: look at the firewall, and at what listens"),
    ("timeout", "the answer takes too long: look at the bot's log and its machine's load"),
    ("certificate", "the certificate is not accepted: send the whole chain, and see that it has not run out"),
    ("ssl", "no TLS comes about: look at the certificate, the whole chain of it"),
    ("resolve", "the name is not known: look at the DNS"),
)


class WebhookVerdict(NamedTuple):
    state: State
    text: str

    @property
    def is_well(self) -> bool:
        return self.state in {"polling", "well"}


def judge(bot: int, info: Mapping[str, Any], now: float) -> WebhookVerdict:
    """`info`: as getWebhookInfo gives it. `now`: seconds since the epoch."""
    url, waiting = str(info.get("url") or ""), int(info.get("pending_update_count") or 0)
    if not url:
        rest = f"; {amount(waiting, 'update waits', 'updates wait')} for that" if waiting else ""
        return WebhookVerdict("polling", f"none is set: the bot uses long polling{rest}")
    whose = bot_at(url)
    if whose is None:
        return WebhookVerdict(
            "elsewhere", "not this Tidegate's address: tidegate webhook set, if it shall be"
        )
    if whose != bot:
        return WebhookVerdict(
            "elsewhere", f"this is the address of bot {whose}: tidegate webhook set --bot {bot}"
        )
    return _of_ours(info, waiting, now)


def _of_ours(info: Mapping[str, Any], waiting: int, now: float) -> WebhookVerdict:
    said, ago = str(info.get("last_error_message") or ""), now - float(info.get("last_error_date") or 0)
    if said and waiting and ago < RECENT_ERROR_SECONDS:
        return WebhookVerdict("failing", remedy(said))
    if waiting > MANY_WAITING:
        return WebhookVerdict(
            "failing", f"{waiting:,} updates wait: the bot takes fewer than come; look at its log"
        )
    past = f"; the last trouble, {span(max(0.0, ago))} ago, is over" if said else ""
    return WebhookVerdict("well", f"updates come to this address{past}")


def remedy(said: str) -> str:
    lowered = said.lower()
    known = (advice for word, advice in _REMEDIES if word in lowered)
    return next(known, "look at what answers at this address, and at its log")
