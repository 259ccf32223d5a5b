"""Webhooks: each update is posted to the bot until it answers 2xx.

Those of a chat are posted in order, each once the one before it was taken; chats are posted side by side.
"""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidegate.clock import Clock
from tidegate.sim.telegram.call import Call, Upload, bad_request
from tidegate.sim.telegram.polling import Polling
from tidegate.sim.telegram.updates import ChatOrder, Update
from tidegate.sim.telegram.world import Bot, Json, Webhook


class WebhookAnswer(NamedTuple):
    """What a bot said to an update. A call may be in it: parameters, with the method among them."""

    status: int
    params: Mapping[str, Any] = {}
    uploads: Mapping[str, Upload] = {}


# url, headers, body → the answer. Raises OSError or TimeoutError if there is none.
Post = Callable[[str, dict[str, str], bytes], Awaitable[WebhookAnswer]]
# How a call in the answer to a webhook is carried out.
Reply = Callable[[Bot, str, Mapping[str, Any], Mapping[str, Upload]], object]

MOST_CONNECTIONS = 100
USUAL_CONNECTIONS = 40
LONGEST_PAUSE = 60.0
_STATUSES = frozenset(HTTPStatus)
_SECRET = re.compile(r"[\w-]{1,256}", re.ASCII)


class Webhooks:
    """Owns one task for each bot that has a webhook; `close` ends them."""

    def __init__(self, clock: Clock, polling: Polling, reply: Reply, post: Post | None) -> None:
        self._clock = clock
        self._polling = polling
        self._reply = reply
        self._post = post
        self._pumps: dict[int, asyncio.Task[None]] = {}

    async def set(self, call: Call) -> bool:
        url = call.word("url")
        if not url:
            return await self.delete(call)
        self._check_address(url)
        secret = call.word("secret_token") if call.params.get("secret_token") is not None else None
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
        bot.webhook = Webhook(url, secret, connections)
        self._polling.interrupt(bot)
        self._pumps[bot.id] = asyncio.create_task(
            self._pump(bot, bot.webhook), name=f"webhook of bot {bot.id}"
        )
        return True

    async def delete(self, call: Call) -> bool:
        await self._stop(call.bot)
        call.bot.webhook = None
        if call.flag("drop_pending_updates"):
            call.bot.updates.clear()
        return True

    async def info(self, call: Call) -> Json:
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
            pump.cancel()
        await asyncio.gather(*self._pumps.values(), return_exceptions=True)
        self._pumps.clear()

    def _check_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port  # an impossible port is found when it is asked for
        except ValueError:
            raise bad_request("bad webhook: invalid webhook URL specified") from None
        if parts.scheme not in {"http", "https"} or not host:
            raise bad_request("bad webhook: an HTTP URL must be provided for webhook")
        if self._post is None:
            raise bad_request("bad webhook: this simulator was started without a way to post")
        # A simulator that can be told to post anywhere would be a tool against others.
        if not is_loopback(host):
            raise bad_request("bad webhook: the simulator posts to loopback addresses only")

    async def _stop(self, bot: Bot) -> None:
        pump = self._pumps.pop(bot.id, None)
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            bot.updates.on_put = bot.updates.on_drop = None

    async def _pump(self, bot: Bot, webhook: Webhook) -> None:
        """As many chats at once as the bot allows; what is not delivered when this ends stays queued."""
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

    async def _deliver_chat(self, bot: Bot, webhook: Webhook, order: ChatOrder, update: Update) -> None:
        """Until nothing waits behind it: whatever does came before all that the pump has not seen yet."""
        following: Update | None = update
        while following is not None:
            await self._deliver(bot, webhook, following)
            following = order.taken(following)

    async def _deliver(self, bot: Bot, webhook: Webhook, update: Update) -> None:
        headers = {"Content-Type": "application/json"}
        if webhook.secret is not None:
            headers["X-Telegram-Bot-Api-Secret-Token"] = webhook.secret
        pause = 1.0
        while (error := await self._try(bot, webhook.url, headers, update)) is not None:
            webhook.last_error = (int(self._clock.now()), error)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, bot: Bot, url: str, headers: dict[str, str], update: Update) -> str | None:
        """Post once; returns what went wrong. The answer may hold a call, which gets no answer itself."""
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


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
