"""Brings the updates of bots from Telegram into the feed, by one webhook of each bot."""

import hmac
import logging
import re
from typing import Final

import msgspec

from tidegate.delivery.sender import BotAccess
from tidegate.errors import BadInputError, StoreError
from tidegate.failure import FailureLog
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.gateway.upstream_updates import FeedSink, FillingTasks, LossLog, UpstreamCallError, WantedBot
from tidegate.inbound.update_feed import UpdateFeed, new_update
from tidegate.inbound.updates import Json
from tidegate.inbound.webhook_app import (
    NO_SUCH_BOT,
    SECRET_HEADER,
    SECRET_OF_NO_BOT,
    WRONG_SECRET,
    webhook_secret,
)
from tidegate.inbound.webhook_request import (
    NOT_FOUND,
    OK,
    BodyReader,
    WebhookRequest,
    WebhookResponse,
    method_not_allowed,
    unavailable,
)
from tidegate.lifecycle import GateCore
from tidegate.model import BotId

log = logging.getLogger("tidegate.gateway")

WEBHOOK_PATH: Final = "/webhook/telegram/"
_BOT_ID: Final = re.compile(r"[0-9]{1,15}")


class UpstreamWebhooks(FillingTasks):
    """One webhook of each bot, which leads to this gateway. Any process accepts what is posted to it."""

    def __init__(
        self,
        core: GateCore,
        feed: UpdateFeed,
        client: ForwardingClient,
        losses: LossLog,
        url: str,
    ) -> None:
        super().__init__(core, feed, client, losses)
        self._url = url.rstrip("/")
        self._bodies = BodyReader(core.clock)

    def confirm_before(self, bot: BotId, offset: int) -> None:
        """Nothing: Telegram posts once more what was fetched and not confirmed."""

    async def ask_for_kinds(self, bot: BotId) -> None:
        state = self._bots.get(bot)
        if state is None:
            return
        state.asks_again = True
        if state.asked_kinds is not None and state.asked_kinds != await self._wanted_kinds(bot):
            state.asked_kinds = None
            self.need(bot, state.access, 0.0)

    async def free(self, bot: BotId, access: BotAccess) -> None:
        """The webhook is the gateway's own."""

    async def accept_webhook(self, request: WebhookRequest) -> WebhookResponse | None:
        name = request.path.removeprefix(WEBHOOK_PATH)
        if request.method != "POST":
            return method_not_allowed("POST")
        if not _BOT_ID.fullmatch(name):
            return NOT_FOUND
        bot = BotId(int(name))
        body = self._check_secret(bot, request) or await self._bodies.read(request)
        return await self._accept(bot, body) if isinstance(body, bytes) else body

    def _check_secret(self, bot: BotId, request: WebhookRequest) -> WebhookResponse | None:
        token = self._core.token_of(bot)
        secret = SECRET_OF_NO_BOT if token is None else webhook_secret(token)
        is_right = hmac.compare_digest(secret.encode(), request.headers.get(SECRET_HEADER, b""))
        if token is None:  # Telegram sends it again, until a client has called with the token
            return NO_SUCH_BOT
        return None if is_right else WRONG_SECRET

    async def _accept(self, bot: BotId, body: bytes) -> WebhookResponse:
        try:
            update = msgspec.json.decode(body, type=Json)
            new_update(update)
            await FeedSink(bot, self._feed, self._core, self._losses).accept([update])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadInputError):
            return WebhookResponse(400, "an update is a JSON object with an update_id: this is none")
        except StoreError as error:
            return unavailable(error)
        return OK

    async def _run(self, bot: BotId, state: WantedBot) -> None:
        """Set the webhook, once in this process for the kinds that are wanted."""
        failures = FailureLog(f"the gateway (bot {bot})", log)
        while self._has_work(state) and self._clock.monotonic() < state.until:
            state.asks_again = False
            try:
                kinds = await self._wanted_kinds(bot)
                params = {
                    "url": f"{self._url}{WEBHOOK_PATH}{bot}",
                    "secret_token": webhook_secret(state.access.token),
                    "allowed_updates": kinds,
                }
                await self._calls.call(state.access, "setWebhook", params)
            except (UpstreamCallError, StoreError) as error:
                await self._fail(bot, state, error, failures.note(error, doing="set its webhook"))
            else:
                state.asked_kinds = None if state.asks_again else kinds
                failures.over("set its webhook")
                self._works(bot, state)

    def _has_work(self, state: WantedBot) -> bool:
        return state.asked_kinds is None
