"""Where Telegram is to post: an address that others may see, so that no secret may be in it."""

import re
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from tidegate.errors import BadInputError
from tidegate.reports import discreet
from tidegate.sim.telegram.webhooks import is_loopback

PATH: Final = "/webhook/telegram"  # and the bot's number
_TOKEN = re.compile(r"\d{1,15}(?::|%3a)[\w-]{20,}", re.IGNORECASE)


def base_of(text: str) -> str:
    """The address that was given, without its last slash. Raises BadInputError that repeats nothing of it."""
    if _TOKEN.search(text):
        raise BadInputError("ADDRESS has a token in it: leave it out, others can see where a webhook is")
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname, parts.port  # an impossible port is found when it is asked for
    except ValueError:
        raise BadInputError("ADDRESS cannot be read: give one such as https://bots.example.org") from None
    _check(parts, host)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _check(parts: SplitResult, host: str | None) -> None:
    if parts.scheme not in {"http", "https"} or not host:
        raise BadInputError("ADDRESS must be an https address: https://bots.example.org")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInputError(
            "ADDRESS takes no user, password, ? or #: Telegram shows a secret that is set with it"
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise BadInputError(
            "ADDRESS must be https: Telegram posts nowhere else (http is taken on this machine, for tests)"
        )
    if PATH in parts.path:
        raise BadInputError(f"ADDRESS ends before {PATH}: that, and the bot's number, is added to it")


def webhook_at(base: str, bot: int) -> str:
    return f"{base}{PATH}/{bot}"


def bot_at(url: str) -> int | None:
    """Whose updates this address takes, if it is one of Tidegate's."""
    match = re.search(rf"{PATH}/(\d{{1,16}})$", url)
    return int(match[1]) if match else None


def shown(text: str, token: str) -> str:
    """Without the token, which many bots have in their webhook's address."""
    secret = token.partition(":")[2]
    for known in (token, quote(token, safe=""), secret):
        text = text.replace(known, "…")
    return _TOKEN.sub("…", discreet(text))
