"""Delivery of updates to a bot: long polling (getUpdates), which the next poll cuts short, and webhooks.

The updates of a chat are posted to a webhook in order, each after the bot answered 2xx to the one before;
chats are posted side by side.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidegate.clock import Clock
from tidegate.loopback import is_loopback
from tidegate.sim.telegram.call import MethodCall, Upload
from tidegate.sim.telegram.entities import Json, SimulatedBot, WebhookSettings
from tidegate.sim.telegram.parameters import TelegramApiError, bad_request
from tidegate.sim.telegram.updates import ChatOrder, UpdateJson
from tidegate.tasks import BackgroundTasks

LONGEST_POLL = 50
MOST_UPDATES = 100
MOST_CONNECTIONS = 100
USUAL_CONNECTIONS = 40
LONGEST_PAUSE = 60.0
CONFLICT = TelegramApiError(
    409,
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
)
WEBHOOK_ACTIVE = TelegramApiError(
    409,
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first",
)
_STATUSES = frozenset(HTTPStatus)
_SECRET = re.compile(r"[\w-]{1,256}", re.ASCII)


class LongPolling:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._polls: dict[int, asyncio.Future[bool]] = {}  # bot → resolved True on an update, False on 409

    async def get_updates(self, call: MethodCall) -> list[dict[str, Any]]:
        bot, updates = call.bot, call.bot.updates
        offset, limit = call.integer("offset", 0), call.integer("limit", MOST_UPDATES)
        timeout = min(call.integer("timeout", 0), LONGEST_POLL)
        allowed = call.nested("allowed_updates")
        if limit not in range(1, MOST_UPDATES + 1) or timeout < 0:
            raise bad_request("limit must be between 1 and 100, timeout must not be negative")
        if bot.webhook is not None:
            raise WEBHOOK_ACTIVE
        if isinstance(allowed, list):
            updates.allow(map(str, allowed))
        updates.confirm_before(offset)
        self._finish(bot.id, arrived=False)
        if not updates and timeout:
            await self._wait(bot, timeout)
        return updates.first(limit)

    def interrupt(self, bot: SimulatedBot) -> None:
        """End a waiting poll with a 409: the bot has set a webhook."""
        self._finish(bot.id, arrived=False)

    async def _wait(self, bot: SimulatedBot, seconds: float) -> None:
        poll = self._polls[bot.id] = asyncio.get_running_loop().create_future()

        def on_put() -> None:
            self._finish(bot.id, arrived=True)

        bot.updates.on_put = on_put
        try:
            async with self._clock.timeout(seconds):
                arrived = await poll
        except TimeoutError:
            return
        finally:
            if self._polls.get(bot.id) is poll:
                del self._polls[bot.id]
            if bot.updates.on_put is on_put:
                bot.updates.on_put = None
        if bot.webhook is not None:
            raise WEBHOOK_ACTIVE
        if not arrived:
            raise CONFLICT

    def _finish(self, bot_id: int, *, arrived: bool) -> None:
        poll = self._polls.get(bot_id)
        if poll is not None and not poll.done():
            poll.set_result(arrived)


class WebhookAnswer(NamedTuple):
    """A bot's answer to an update. It may hold a call: its parameters, with the method among them."""

    status: int
    params: Mapping[str, Any] = {}
    uploads: Mapping[str, Upload] = {}


# url, headers, body → the answer. Raises OSError or TimeoutError if there is none.
Post = Callable[[str, dict[str, str], bytes], Awaitable[WebhookAnswer]]
# Carries out a call in the answer to a webhook.
Reply = Callable[[SimulatedBot, str, Mapping[str, Any], Mapping[str, Upload]], object]


class WebhookDelivery:
    """Posts updates in one background task per bot with a webhook; `close` ends them."""

    def __init__(self, clock: Clock, polling: LongPolling, reply: Reply, post: Post | None) -> None:
        self._clock = clock
        self._polling = polling
        self._reply = reply
        self._post = post
        self._pumps: dict[int, BackgroundTasks] = {}

    async def set(self, call: MethodCall) -> bool:
        url = call.string("url")
        if not url:
            return await self.delete(call)
        self._check_address(url)
        secret = call.string("secret_token") if call.params.get("secret_token") is not None else None
        if secret is not None and not _SECRET.fullmatch(secret):
            raise bad_request("secret token contains unallowed characters")
        connections = call.integer("max_connections", USUAL_CONNECTIONS)
        if connections not in range(1, MOST_CONNECTIONS + 1):
            raise bad_request(f"max_connections must be between 1 and {MOST_CONNECTIONS}")
        allowed = call.nested("allowed_updates")
        bot = call.bot
        await self._stop(bot)
        if call.flag("drop_pending_updates"):
            bot.updates.clear()
        if isinstance(allowed, list):
            bot.updates.allow(map(str, allowed))
        bot.webhook = WebhookSettings(url, secret, connections)
        self._polling.interrupt(bot)
        pump = self._pumps[bot.id] = BackgroundTasks()
        pump.start(self._pump(bot, bot.webhook), f"webhook of bot {bot.id}")
        return True

    async def delete(self, call: MethodCall) -> bool:
        await self._stop(call.bot)
        call.bot.webhook = None
        if call.flag("drop_pending_updates"):
            call.bot.updates.clear()
        return True

    async def info(self, call: MethodCall) -> Json:
        webhook, updates = call.bot.webhook, call.bot.updates
        info: Json = {
            "url": webhook.url if webhook else "",
            "has_custom_certificate": False,
            "pending_update_count": len(updates),
        }
        if webhook:
            info["max_connections"] = webhook.max_connections
            if webhook.last_error:
                info["last_error_date"], info["last_error_message"] = webhook.last_error
        if updates.allowed:
            info["allowed_updates"] = updates.allowed
        return info

    async def close(self) -> None:
        for pump in self._pumps.values():
            await pump.stop()
        self._pumps.clear()

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port  # reading an impossible port raises
        except ValueError:
            raise bad_request("bad webhook: invalid webhook URL specified") from None
        if parts.scheme not in {"http", "https"} or not host:
            raise bad_request("bad webhook: an HTTP URL must be provided for webhook")
        if self._post is None:
            raise bad_request("bad webhook: this simulator cannot post: start it as a server")
        # A simulator that posts to any address could be used to attack others.
        if not is_loopback(host):
            raise bad_request("bad webhook: the simulator posts to loopback addresses only")

    async def _stop(self, bot: SimulatedBot) -> None:
        pump = self._pumps.pop(bot.id, None)
        if pump is not None:
            await pump.stop()
            bot.updates.on_put = bot.updates.on_drop = None

    async def _pump(self, bot: SimulatedBot, webhook: WebhookSettings) -> None:
        """Post to as many chats at once as the bot allows. Undelivered updates stay queued when this ends."""
        arrived, order = asyncio.Event(), ChatOrder(bot.updates)
        bot.updates.on_put = arrived.set
        free = asyncio.Semaphore(webhook.max_connections)
        async with asyncio.TaskGroup() as chats:
            while True:
                await free.acquire()
                while (update := order.next()) is None:
                    arrived.clear()
                    await arrived.wait()
                chat = chats.create_task(self._deliver_chat(bot, webhook, order, update))
                chat.add_done_callback(lambda _: free.release())

    async def _deliver_chat(
        self, bot: SimulatedBot, webhook: WebhookSettings, order: ChatOrder, update: UpdateJson
    ) -> None:
        """Post an update, then those that wait in its chat: they precede all that the pump has not seen."""
        following: UpdateJson | None = update
        while following is not None:
            await self._deliver(bot, webhook, following)
            following = order.taken(following)

    async def _deliver(self, bot: SimulatedBot, webhook: WebhookSettings, update: UpdateJson) -> None:
        headers = {"Content-Type": "application/json"}
        if webhook.secret is not None:
            headers["X-Telegram-Bot-Api-Secret-Token"] = webhook.secret
        pause = 1.0
        while (error := await self._try(bot, webhook.url, headers, update)) is not None:
            webhook.last_error = (int(self._clock.now()), error)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(
        self, bot: SimulatedBot, url: str, headers: dict[str, str], update: UpdateJson
    ) -> str | None:
        """Post once; returns the error, if any. A call in the answer is carried out, and gets no answer."""
        assert self._post is not None  # noqa: S101  (checked when the webhook was set)
        try:
            answer = await self._post(url, headers, msgspec.json.encode(update))
        except TimeoutError:
            return "Read timeout expired"
        except OSError as error:
            return f"Connection failed: {error.strerror or type(error).__name__}"
        if not 200 <= answer.status < 300:  # noqa: PLR2004
            phrase = HTTPStatus(answer.status).phrase if answer.status in _STATUSES else ""
            return f"Wrong response from the webhook: {answer.status} {phrase}".rstrip()
        params = dict(answer.params)
        if isinstance(method := params.pop("method", None), str):
            self._reply(bot, method, params, answer.uploads)
        return None
