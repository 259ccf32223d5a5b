"""The bots whose webhooks are meant, their addresses, and the calls to Telegram about them."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from tidegate.bots.registry import TELEGRAM, BotRegistry
from tidegate.cli.store import is_redis, store_name, using_gate
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.loopback import is_loopback
from tidegate.model import BotId
from tidegate.ops.webhook_state import PATH, without_token
from tidegate.scrubber import contains_token
from tidegate.settings import Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate


def base_of(text: str) -> str:
    """Check an address and drop its last slash. Raises BadInputError that repeats nothing of it."""
    if contains_token(text):
        raise BadInputError(
            "ADDRESS contains a token: leave it out, since others can see the address of a webhook"
        )
    try:
        parts = urlsplit(text.strip())
        host, _ = parts.hostname, parts.port  # reading the port raises for an impossible one
    except ValueError:
        raise BadInputError("ADDRESS cannot be read: give one such as https://bots.example.org") from None
    _check_address(parts, host)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _check_address(parts: SplitResult, host: str | None) -> None:
    if parts.scheme not in {"http", "https"} or not host:
        raise BadInputError("ADDRESS must be an https address: https://bots.example.org")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInputError(
            "ADDRESS must have no user, password, ? or #: others can see the address of a webhook"
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise BadInputError(
            "ADDRESS must be https: Telegram posts nowhere else (http is allowed on this machine, for tests)"
        )
    if PATH in parts.path:
        raise BadInputError(f"ADDRESS must end before {PATH}: the path and the bot's number are added to it")


def webhook_at(base: str, bot: int) -> str:
    return f"{base}{PATH}/{bot}"


Result = TypeVar("Result")
CALL_SECONDS: Final = 20.0  # for a call to leave; its answer has a timeout of its own
_ADVICE: Final = (
    ("https url", "give an address that begins with https://"),
    ("port", "use one of the ports that Telegram allows: 443, 80, 88 or 8443"),
    ("resolve host", "check that the name is right and in the public DNS"),
    ("reserved", "Telegram reaches public addresses only: use one, or long polling"),
    ("allowed_updates", "check the kinds in --allowed-updates"),
    ("connections", "pass a smaller --max-connections"),
)


class WebhookCalls:
    """Calls to Telegram about webhooks. The caller closes `wire`."""

    def __init__(self, wire: BotApiTransport, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    async def call(self, bot: BotAccess, method: str, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401  (Telegram's)
        """Return the result. Raises NotDeliveredError whose text says what to do."""
        deadline = self._clock.monotonic() + CALL_SECONDS
        wire = bot.wire or self._wire
        answer = await wire.call(bot.token, method, params or {}, api_url=bot.api_url, deadline=deadline)
        if isinstance(answer, ApiAnswer) and answer.body is not None and answer.body.get("ok"):
            return answer.body.get("result")
        number = bot.token.partition(":")[0]
        text = f"{method} of {number}:… failed: {without_token(complaint(answer, bot.api_url), bot.token)}"
        raise NotDeliveredError(text, method=method, chat_id=None)


async def with_calls(work: Callable[[WebhookCalls], Awaitable[Result]]) -> Result:
    """Run `work` with a connection to Telegram, which is closed after it."""
    clock = Clock()
    wire = BotApiClient(clock)
    try:
        return await work(WebhookCalls(wire, clock))
    finally:
        await wire.close()


def complaint(answer: ApiAnswer | NoAnswer, api_url: str) -> str:
    """Say what the answer was, and what to do."""
    if isinstance(answer, NoAnswer):
        perhaps = "; it may have been done nevertheless: see tidegate webhook info" if answer.left else ""
        return f"no answer from {api_url} ({answer.reason}): check the address and the network{perhaps}"
    if answer.body is None:
        return f"{api_url} answers with status {answer.status}, but not as Telegram does: check the address"
    said = str(answer.body.get("description") or f"status {answer.status}")
    return f"{said}: {_advice(answer.status, said, answer.body)}"


def _advice(status: int, said: str, body: Mapping[str, Any]) -> str:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
        return "the token is no longer valid: register the new one from @BotFather with tidegate bot add"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        seconds = (body.get("parameters") or {}).get("retry_after", 1)
        return f"try again in {seconds} s"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "Telegram has a failure of its own: try again in a minute"
    known = (advice for word, advice in _ADVICE if word in said.lower())
    return next(known, "correct that and try again")


Bots = dict[BotId, BotAccess]


class BotOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that choose bots: a store, a number, the address of a Bot API server."""

    store: str | None
    bot: int | None
    api_url: str | None


def find_bots(whose: BotOptions) -> Bots:
    """Find the bots. Raises BadInputError if there is none, or not the one named. Runs an event loop."""
    if whose.api_url is not None and "@" in whose.api_url:
        raise BadInputError("--api-url: the address must not contain a user or a password")
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
    """Return the bot of TELEGRAM_BOT_TOKEN, whose token overrides a registered one."""
    known = Settings.read().telegram_bot_token
    if known is None:
        return {}
    alone: Bots = {}
    bot = BotRegistry(alone, None, {}).add(known.get_secret_value().strip(), api_url or TELEGRAM)
    if api_url is None and bot.id in registered:
        return {bot.id: BotAccess(alone[bot.id].token, registered[bot.id].api_url)}
    return alone


def _registered(whose: BotOptions) -> Bots:
    return using_gate(whose.store, _read_bots) if _needs_store(whose.store) else {}


def _needs_store(store: str | None) -> bool:
    """A store is optional if a token is in the environment; one that was named must exist."""
    place = store_name(store)
    if place == "memory://":
        return False
    given = Settings.read().telegram_bot_token is not None
    return (
        not given or store is not None or is_redis(place) or Path(place.removeprefix("sqlite:///")).exists()
    )


async def _read_bots(gate: "Tidegate") -> Bots:
    """Read the tokens from the store. The gate itself is not used: a worker may be the sender."""
    bots = gate.core.store.bots
    if bots is None:
        return {}
    return {bot.id: BotAccess(await bots.open(bot), bot.api_url) for bot in await bots.all()}
