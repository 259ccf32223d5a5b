"""The bots whose webhooks are meant, their addresses, and the calls to Telegram about them."""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from tidegate.bots.encryption import TokenCipher
from tidegate.bots.port import BotStore
from tidegate.bots.registry import TELEGRAM, BotRegistry
from tidegate.cli import loop
from tidegate.cli.store import file_of, gate_at, is_redis, link_of, place_of, quietly, reached
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.failure import scrub
from tidegate.gate import Tidegate
from tidegate.model import BotId
from tidegate.settings import Settings
from tidegate.sim.telegram.update_delivery import is_loopback
from tidegate.stores.sqlite.bots import SqliteBotStore
from tidegate.stores.sqlite.outbox import SqliteOutbox

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
    _check_address(parts, host)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _check_address(parts: SplitResult, host: str | None) -> None:
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


def without_token(text: str, token: str) -> str:
    """Without the token, which many bots have in their webhook's address."""
    secret = token.partition(":")[2]
    for known in (token, quote(token, safe=""), secret):
        text = text.replace(known, "…")
    return _TOKEN.sub("…", scrub(text))


Result = TypeVar("Result")
CALL_SECONDS: Final = 20.0  # seconds for a call to leave; its answer has its own time
_ADVICE: Final = (
    ("https url", "give an address that begins with https://"),
    ("port", "put it behind one of the ports that Telegram takes: 443, 80, 88 or 8443"),
    ("resolve host", "is the name right, and in the public DNS already?"),
    ("reserved", "Telegram reaches public addresses only: use one, or long polling"),
    ("allowed_updates", "look at the kinds in --allowed-updates"),
    ("connections", "give fewer --max-connections"),
)


class WebhookCalls:
    """Whom to ask; `wire` stays its owner's."""

    def __init__(self, wire: BotApiTransport, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    async def call(self, bot: BotAccess, method: str, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401  (Telegram's)
        """The result. Raises NotDeliveredError, in one line that says what to do."""
        deadline = self._clock.monotonic() + CALL_SECONDS
        wire = bot.wire or self._wire
        answer = await wire.call(bot.token, method, params or {}, api_url=bot.api_url, deadline=deadline)
        if isinstance(answer, ApiAnswer) and answer.body is not None and answer.body.get("ok"):
            return answer.body.get("result")
        number = bot.token.partition(":")[0]
        text = f"{method} of {number}:… failed: {without_token(complaint(answer, bot.api_url), bot.token)}"
        raise NotDeliveredError(text, method=method, chat_id=None)


async def with_calls(work: Callable[[WebhookCalls], Awaitable[Result]]) -> Result:
    """What `work` makes of Telegram, which is reached for it and let go after it."""
    clock = Clock()
    wire = BotApiClient(clock)
    try:
        return await work(WebhookCalls(wire, clock))
    finally:
        await wire.close()


def complaint(answer: ApiAnswer | NoAnswer, api_url: str) -> str:
    """What was said, and what to do."""
    if isinstance(answer, NoAnswer):
        perhaps = "; it may have been done all the same: tidegate webhook info" if answer.left else ""
        return f"no answer from {api_url} ({answer.reason}): look at the address and the network{perhaps}"
    if answer.body is None:
        return f"{api_url} answers with status {answer.status}, but not as Telegram does: look at the address"
    said = str(answer.body.get("description") or f"status {answer.status}")
    return f"{said}: {_advice(answer.status, said, answer.body)}"


def _advice(status: int, said: str, body: Mapping[str, Any]) -> str:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
        return "the token is not good any more: take the new one from @BotFather, tidegate bot add"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        seconds = (body.get("parameters") or {}).get("retry_after", 1)
        return f"do it again in {seconds} s"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "Telegram has trouble of its own: do it again in a minute"
    known = (advice for word, advice in _ADVICE if word in said.lower())
    return next(known, "correct that and do it again")


Bots = dict[BotId, BotAccess]


class BotOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of the bots: a store, a number, the address of a Bot API server."""

    store: str | None
    bot: int | None
    api_url: str | None


def find_bots(whose: BotOptions) -> Bots:
    """Never call it inside an event loop. Raises BadInputError if there is none, or not the one named."""
    if whose.api_url is not None and "@" in whose.api_url:
        raise BadInputError(
            "--api-url: an address with a user or a password in it is not taken: leave it out"
        )
    found = _registered(whose)
    found |= _of_the_environment(whose.api_url, found)
    return _chosen(found, whose.bot)


def _chosen(found: Bots, number: int | None) -> Bots:
    if not found:
        raise BadInputError("no bot is known here: begin with tidegate bot add, or set TELEGRAM_BOT_TOKEN")
    if number is None:
        return found
    if number not in found:
        raise BadInputError(f"--bot: {number} is not known here, but {', '.join(map(str, sorted(found)))}")
    return {BotId(number): found[BotId(number)]}


def _of_the_environment(api_url: str | None, registered: Bots) -> Bots:
    """Its token counts more than a registered one: whoever serves the bot may have it from there, too."""
    known = Settings.read().telegram_bot_token
    if known is None:
        return {}
    alone: Bots = {}
    bot = BotRegistry(alone, None, {}).add(known.get_secret_value().strip(), api_url or TELEGRAM)
    if api_url is None and bot.id in registered:
        return {bot.id: BotAccess(alone[bot.id].token, registered[bot.id].api_url)}
    return alone


def _registered(whose: BotOptions) -> Bots:
    if not _is_needed(whose.store):
        return {}
    gate = gate_at(whose.store)
    shelf = _shelf(gate, whose.store)  # here: the key may be in a file
    with quietly():
        return {} if shelf is None else loop.run(_open(gate, whose.store, shelf))


def _is_needed(store: str | None) -> bool:
    """Who has given a token need not have a store; one that was named must be there."""
    place = place_of(store)
    if place == "memory://":
        return False
    given = Settings.read().telegram_bot_token is not None
    return (
        not given or store is not None or is_redis(place) or Path(place.removeprefix("sqlite:///")).exists()
    )


async def _open(gate: Tidegate, store: str | None, shelf: BotStore) -> Bots:
    """Not through the gate: a worker may be its sender, and these calls need no turn."""
    async with reached(gate, store):
        return {bot.id: BotAccess(await shelf.open(bot), bot.api_url) for bot in await shelf.all()}


def _shelf(gate: Tidegate, store: str | None) -> BotStore | None:
    key, link = gate.settings.tidegate_key, link_of(gate)
    if link is not None:
        from tidegate.stores.redis.bots import RedisBotStore  # noqa: PLC0415  (its driver is an extra)

        return RedisBotStore(link, TokenCipher.of(key, None))
    if isinstance(gate.outbox, SqliteOutbox):
        return SqliteBotStore(gate.outbox.file, TokenCipher.of(key, file_of(store)))
    return None
