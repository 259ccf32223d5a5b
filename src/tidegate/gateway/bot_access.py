"""Access to the calls of a bot: by the bot's own token, or by an access token of the gateway.

An access token is an API token of Tidegate behind the number of a bot, `42:tg_…`: the form that every library
takes. The bot's own token then never leaves the gateway. A bot's own token is believed once Telegram has
answered `getMe` with it: otherwise anybody could use up the limits of a bot by naming it.
"""

import asyncio
import hmac
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Final, NamedTuple

from tidegate.access import Principal, Role
from tidegate.clock import Clock
from tidegate.delivery.bot_api import RawCall, decode_answer
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import NoAnswer
from tidegate.errors import TidegateError
from tidegate.gateway.answers import ApiRefusal, no_answer
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.lifecycle import GateCore
from tidegate.model import BotId
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.gateway")

ACCESS_PREFIX: Final = "tg_"
VERIFY_WITHIN: Final = 10.0  # seconds for Telegram to answer
REFUSED_FOR: Final = 10.0  # seconds for which Telegram is not asked again for a token that it refused
MOST_REFUSED: Final = 1_000
MOST_VERIFICATIONS: Final = 32  # under way at once
ADMIN_METHODS: Final = frozenset(("close", "logOut"))  # they end the bot for everybody
_TOKEN: Final = re.compile(r"(\d{1,15}):([\w-]{1,80})", re.ASCII)

Authenticate = Callable[[str], Awaitable[Principal | None]]


class Caller(NamedTuple):
    """The caller, and the bot that it calls for. Its repr shows no token."""

    bot: BotId
    access: BotAccess
    principal: Principal | None = None  # None: somebody with the bot's own token

    @property
    def may_be_urgent(self) -> bool:
        return self.principal is not None and self.principal.may(Role.ADMIN, self.bot)

    def check_method(self, method: str) -> None:
        """Raise ApiRefusal for a method that this caller may not use."""
        if self.principal is not None and method in ADMIN_METHODS and not self.may_be_urgent:
            raise ApiRefusal(HTTPStatus.FORBIDDEN, f"{method} needs an access token of the role admin")


class CallerRegistry:
    """Finds out who calls. Everything that it remembers is bounded."""

    def __init__(
        self,
        core: GateCore,
        client: ForwardingClient,
        authenticate: Authenticate,
        *,
        api_url: str,
        allowed: Collection[BotId] = (),
    ) -> None:
        self._core = core
        self._client = client
        self._authenticate = authenticate
        self._api_url = api_url
        self._allowed = frozenset(allowed)
        self._refused: OrderedDict[str, float] = OrderedDict()  # until, monotonic
        self._verifying: dict[str, asyncio.Task[ApiRefusal | None]] = {}
        self._tasks = BackgroundTasks()

    async def find(self, token: str) -> Caller:
        """Return who calls. Raises ApiRefusal."""
        match = _TOKEN.fullmatch(token)
        if match is None:  # as Telegram answers what cannot be a token
            raise ApiRefusal(HTTPStatus.NOT_FOUND, "", detail="the token in the path is none")
        bot, secret = BotId(int(match[1])), match[2]
        if self._allowed and bot not in self._allowed:
            text = f"bot {bot} may not use this gateway: start it with --allow {bot}"
            raise ApiRefusal(HTTPStatus.UNAUTHORIZED, text)
        if secret.startswith(ACCESS_PREFIX):
            return await self._by_access_token(bot, secret)
        known = self._core.sender.bots.get(bot)
        if known is None or not hmac.compare_digest(known.token, token):
            await self._verify(token)
            known = self._core.sender.bots[bot]
        return Caller(bot, known)

    async def close(self) -> None:
        await self._tasks.stop()

    async def _by_access_token(self, bot: BotId, secret: str) -> Caller:
        try:
            principal = await self._authenticate(secret)
        except TidegateError as error:
            text = "the access token cannot be checked now: try again"
            raise ApiRefusal(HTTPStatus.SERVICE_UNAVAILABLE, text, detail=str(error)) from None
        if principal is None:
            raise ApiRefusal(HTTPStatus.UNAUTHORIZED, "the access token is wrong, expired or revoked")
        if not principal.may(Role.OPERATOR, bot):
            text = f"the access token may not make calls for bot {bot}: that needs the role operator"
            raise ApiRefusal(HTTPStatus.FORBIDDEN, text)
        access = self._core.sender.bots.get(bot)
        if access is None:
            await self._core.registry.look()  # another process may have registered it just now
            access = self._core.sender.bots.get(bot)
        if access is None:
            text = f"bot {bot} is not registered here: tidegate bot add"
            raise ApiRefusal(HTTPStatus.UNAUTHORIZED, text)
        return Caller(bot, access, principal)

    async def _verify(self, token: str) -> None:
        """Ask Telegram whether it knows the token; callers that ask at the same time share one question."""
        if self._refused.get(token, 0.0) > self._core.clock.monotonic():
            raise ApiRefusal(HTTPStatus.UNAUTHORIZED, "")
        asking = self._verifying.get(token)
        if asking is None:
            if len(self._verifying) >= MOST_VERIFICATIONS:
                raise ApiRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many new bots at once: try again")
            asking = self._tasks.start(self._ask(token), "verifies a bot's token", awaited=True)
            self._verifying[token] = asking
        if (refusal := await asyncio.shield(asking)) is not None:
            raise refusal

    async def _ask(self, token: str) -> ApiRefusal | None:
        clock: Clock = self._core.clock
        try:
            call = RawCall("getMe", "application/json", (b"{}",))
            deadline = clock.monotonic() + VERIFY_WITHIN
            answer = await self._client.forward(
                token, call, api_url=self._api_url, deadline=deadline, timeout=VERIFY_WITHIN
            )
            if isinstance(answer, NoAnswer):
                return no_answer(answer)
            body = decode_answer(answer) or {}
            if body.get("ok") is True:
                bot = self._core.add_bot(token, api_url=self._api_url)
                log.info("bot %s uses the gateway", bot.id)
                return None
            if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
                self._refuse(token)
                return ApiRefusal(HTTPStatus.UNAUTHORIZED, "")
            return ApiRefusal(
                HTTPStatus.BAD_GATEWAY, f"Telegram answered {answer.status} to getMe: try again"
            )
        finally:
            self._verifying.pop(token, None)

    def _refuse(self, token: str) -> None:
        self._refused[token] = self._core.clock.monotonic() + REFUSED_FOR
        self._refused.move_to_end(token)
        if len(self._refused) > MOST_REFUSED:
            self._refused.popitem(last=False)
