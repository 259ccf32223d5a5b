"""The updates of a bot for several readers: each has its own offset, its own kinds, or its own webhook.

`/reader/NAME/bot<token>/getUpdates` is a reader with a name, `/bot<token>/getUpdates` the one called
`default`. What Telegram sends once is kept in the update feed until each of them has confirmed it.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import StoreError, TidegateError
from tidegate.gateway.answers import ApiRefusal, bad_request, encode
from tidegate.gateway.bot_access import Caller
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.gateway.received_call import ReceivedCall, is_true, plain
from tidegate.gateway.reply_chats import ReplyChats
from tidegate.gateway.update_push import HttpPost, Post, PushParts, UpdatePush, check_target
from tidegate.gateway.upstream_updates import FeedFiller, LossLog, UpstreamPolls
from tidegate.gateway.upstream_webhooks import UpstreamWebhooks
from tidegate.inbound.update_feed import (
    DEFAULT_READER,
    MAX_READERS,
    FedUpdate,
    FeedPage,
    FeedReader,
    Kinds,
    ReadRequest,
)
from tidegate.inbound.webhook_request import WebhookRequest, WebhookResponse
from tidegate.lifecycle import GateCore
from tidegate.model import BotId
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.gateway")

LONGEST_POLL: Final = 50  # seconds, as at Telegram
MOST_UPDATES: Final = 100
FRESH_WITHIN: Final = 5.0  # seconds that a brief poll waits for what Telegram holds, if nobody was polling
DROP_EVERY: Final = 600.0  # seconds between two looks for old updates
MOST_KINDS: Final = 100
LARGEST_OFFSET: Final = 2**53
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CONFLICT: Final = (
    "terminated by other getUpdates request; make sure that only one bot instance is running, or give each a"
    " name of its own: /reader/NAME/bot<token>"
)
_PUSHED: Final = (
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)

# Makes a call for a bot as if a client had made it, at once.
Make = Callable[[Caller, ReceivedCall], Awaitable[object]]


class SharingOptions(NamedTuple):
    """How updates are shared. `webhook_url`: where Telegram reaches this gateway; None: it is polled."""

    webhook_url: str | None = None
    webhook_hosts: frozenset[str] = frozenset()  # beside this machine, where readers may have updates posted


class _Poll:
    """A getUpdates that is under way."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.wake = asyncio.Event()
        self.is_superseded = False


class SharedUpdates:
    """Answers what is about updates from the feed, and keeps that filled."""

    def __init__(
        self,
        core: GateCore,
        client: ForwardingClient,
        replies: ReplyChats,
        options: SharingOptions,
        make: Make,
        *,
        post: Post | None = None,
    ) -> None:
        self._core = core
        self._clock = core.clock
        self._client = client
        self._replies = replies
        self._options = options
        self._make = make
        self._given_post = post
        self._losses = LossLog(core.clock)
        self._polls: dict[tuple[BotId, str], _Poll] = {}
        self._is_stopping = False
        self._running = AsyncExitStack()
        self._upstream: FeedFiller
        self._push: UpdatePush
        self._methods: Mapping[str, Callable[[Caller, str, ReceivedCall], Awaitable[Any]]] = {
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._webhook_info,
        }

    async def start(self) -> None:
        """Called when the gate is open: the store is another one each time."""
        self._feed = feed = self._core.store.update_feed
        async with AsyncExitStack() as stack:
            await feed.open()
            stack.push_async_callback(feed.close)
            url, parts = self._options.webhook_url, (self._core, feed, self._client, self._losses)
            self._upstream = UpstreamPolls(*parts) if url is None else UpstreamWebhooks(*parts, url)
            stack.push_async_callback(self._upstream.stop)
            post = self._given_post
            if post is None:
                post = own = HttpPost()
                stack.push_async_callback(own.close)
            self._push = UpdatePush(
                PushParts(
                    self._core,
                    feed,
                    self._upstream,
                    self._losses,
                    post,
                    on_posted=self._note,
                    reply=self._make_reply,
                )
            )
            stack.push_async_callback(self._push.stop)
            self._push.start()
            tasks = BackgroundTasks()
            stack.push_async_callback(tasks.stop)
            tasks.supervise(self._drop_old, "what drops old updates", self._clock)
            self._running = stack.pop_all()

    async def stop(self) -> None:
        await self._running.aclose()

    async def _drop_old(self) -> None:
        """Keep nothing for longer than promised, also of bots that are quiet."""
        while True:
            with suppress(StoreError):  # whoever reads or posts says so
                for bot in await self._feed.bots():
                    self._losses.note(bot, await self._feed.drop_old(bot))
            await self._clock.sleep(DROP_EVERY)

    def end_polls(self) -> None:
        """Answer the polls that wait: the server is about to stop."""
        self._is_stopping = True
        for poll in self._polls.values():
            poll.wake.set()

    def answers(self, method: str) -> bool:
        return method == "getUpdates" or method in self._methods

    async def answer(self, caller: Caller, reader: str, received: ReceivedCall) -> bytes:
        """Return the body of the answer. Raises ApiRefusal."""
        if received.method == "getUpdates":
            updates = await self._get_updates(caller, reader, received.params)
            return b'{"ok":true,"result":[%b]}' % b",".join(one.content() for one in updates)
        found = await self._methods[received.method](caller, reader, received)
        return encode({"ok": True, **found})

    async def accept_webhook(self, request: WebhookRequest) -> WebhookResponse | None:
        return await self._upstream.accept_webhook(request)

    async def _get_updates(self, caller: Caller, reader: str, params: Mapping[str, Any]) -> list[FedUpdate]:
        bot, poll = caller.bot, _Poll()
        if (older := self._polls.get((bot, reader))) is not None:
            older.is_superseded = True
            older.wake.set()
        self._polls[bot, reader] = poll
        unwatch = self._feed.watch(bot, poll.wake.set), self._upstream.watch(bot, poll.wake.set)
        try:
            updates = await self._poll(caller, reader, params, poll)
        finally:
            for stop_watching in unwatch:
                stop_watching()
            if self._polls.get((bot, reader)) is poll:
                del self._polls[bot, reader]
        for update in updates:
            self._note(bot, update)
        return updates

    async def _poll(
        self, caller: Caller, reader: str, params: Mapping[str, Any], poll: _Poll
    ) -> list[FedUpdate]:
        bot, timeout = caller.bot, _integer(params, "timeout", 0, 0, LONGEST_POLL)
        request = ReadRequest(
            poll=poll.name,
            offset=_integer(params, "offset", 0, -LARGEST_OFFSET, LARGEST_OFFSET),
            limit=_integer(params, "limit", MOST_UPDATES, 1, MOST_UPDATES),
            kinds=_kinds(params.get("allowed_updates")),
        )
        began = self._clock.monotonic()
        page = await self._read(bot, reader, request)
        self._need(caller, reader, request, page, timeout)
        if page.has_new_kinds:
            await self._upstream.ask_for_kinds(bot)
        again = msgspec.structs.replace(request, begins=False, offset=None, kinds=None)
        while not page.updates and not self._is_stopping:
            # A brief poll waits for what Telegram holds, too.
            longest = timeout if self._upstream.is_fresh(bot) else max(timeout, FRESH_WITHIN)
            left = began + longest - self._clock.monotonic()
            problem = self._upstream.problem(bot)
            if problem is not None and (left <= 0 or problem.code < HTTPStatus.INTERNAL_SERVER_ERROR):
                raise problem
            if left <= 0:
                break
            with suppress(TimeoutError):
                async with self._clock.timeout(left):
                    await poll.wake.wait()
            if poll.is_superseded:
                raise ApiRefusal(HTTPStatus.CONFLICT, _CONFLICT)
            poll.wake.clear()
            page = await self._read(bot, reader, again)
        return list(page.updates)

    async def _read(self, bot: BotId, reader: str, request: ReadRequest) -> FeedPage:
        page = await self._feed.read(bot, reader, request)
        self._losses.note(bot, page.dropped)
        if page.state == "ok":
            return page
        if page.state == "crowded":
            raise _crowded(bot)
        raise ApiRefusal(HTTPStatus.CONFLICT, _PUSHED if page.state == "pushed" else _CONFLICT)

    def _need(
        self, caller: Caller, reader: str, request: ReadRequest, page: FeedPage, timeout: float
    ) -> None:
        offset = request.offset or 0
        if reader == DEFAULT_READER and page.readers == 1 and offset > page.last + 1:
            # It has read up to there without the gateway's help: Telegram may forget what comes before.
            self._upstream.confirm_before(caller.bot, offset)
        self._upstream.need(caller.bot, caller.access, timeout)

    def _note(self, bot: BotId, update: FedUpdate) -> None:
        with suppress(msgspec.DecodeError):  # its reader will see
            self._replies.note(bot, msgspec.json.decode(update.body))

    async def _set_webhook(self, caller: Caller, reader: str, received: ReceivedCall) -> dict[str, Any]:
        params = received.params
        url = params.get("url")
        if not url:
            return await self._delete_webhook(caller, reader, received)
        if received.has_files or params.get("certificate") or params.get("ip_address"):
            raise bad_request("bad webhook: the gateway takes neither a certificate nor an ip_address")
        target = check_target(str(url), params.get("secret_token"), self._options.webhook_hosts)
        kinds = _kinds(params.get("allowed_updates"))
        if drops := is_true(params.get("drop_pending_updates")):
            await self._freshen(caller)
        is_set = await self._feed.set_target(caller.bot, reader, target, kinds=kinds, drops_pending=drops)
        if not is_set:
            raise _crowded(caller.bot)
        self._end_poll(caller.bot, reader)
        self._upstream.need(caller.bot, caller.access, 0.0)
        await self._upstream.ask_for_kinds(caller.bot)
        self._push.changed(caller.bot, reader)
        return {"result": True, "description": "Webhook was set"}

    async def _delete_webhook(self, caller: Caller, reader: str, received: ReceivedCall) -> dict[str, Any]:
        await self._upstream.free(caller.bot, caller.access)
        if drops := is_true(received.params.get("drop_pending_updates")):
            await self._freshen(caller)
        found = await self._find(caller.bot, reader)
        was_set = found is not None and found.target is not None
        if drops or was_set:
            if not await self._feed.set_target(caller.bot, reader, None, drops_pending=drops):
                raise _crowded(caller.bot)
            self._push.changed(caller.bot, reader)
        return {
            "result": True,
            "description": "Webhook was deleted" if was_set else "Webhook is already deleted",
        }

    async def _webhook_info(self, caller: Caller, reader: str, _: ReceivedCall) -> dict[str, Any]:
        found = await self._find(caller.bot, reader)
        target = None if found is None else found.target
        info: dict[str, Any] = {
            "url": "" if target is None else target.url,
            "has_custom_certificate": False,
            "pending_update_count": await self._feed.pending(caller.bot, reader),
        }
        if target is not None:
            info["max_connections"] = 1
            if target.error:
                info["last_error_date"] = int(target.error_at)
                info["last_error_message"] = target.error
        if found is not None and found.kinds:
            info["allowed_updates"] = list(found.kinds)
        return {"result": info}

    async def _freshen(self, caller: Caller) -> None:
        """Fetch what Telegram holds, so that it can be dropped, if nobody was polling."""
        changed = asyncio.Event()
        unwatch = self._upstream.watch(caller.bot, changed.set)
        try:
            self._upstream.need(caller.bot, caller.access, 0.0)
            with suppress(TimeoutError):
                async with self._clock.timeout(FRESH_WITHIN):
                    while not self._upstream.is_fresh(caller.bot):
                        changed.clear()
                        await changed.wait()
        finally:
            unwatch()

    async def _find(self, bot: BotId, reader: str) -> FeedReader | None:
        return next((one for one in await self._feed.readers(bot) if one.name == reader), None)

    def _end_poll(self, bot: BotId, reader: str) -> None:
        if (poll := self._polls.get((bot, reader))) is not None:
            poll.wake.set()  # it reads again, and finds that it is over

    async def _make_reply(self, bot: BotId, call: Mapping[str, Any]) -> None:
        """Make the call in an answer to a post. Nobody hears of its result, as at Telegram."""
        params = dict(call)
        method = params.pop("method")
        access = self._core.sender.bots.get(bot)
        try:
            received = ReceivedCall.of(method, params)
            if access is not None and not self.answers(received.method):
                await self._make(Caller(bot, access), received)
        except (ApiRefusal, TidegateError) as error:
            log.warning("%s of bot %s in the answer of a webhook was not made: %s", method[:64], bot, error)


def _crowded(bot: BotId) -> ApiRefusal:
    text = f"bot {bot} has {MAX_READERS} readers already: one that is silent for a day is forgotten"
    return bad_request(text)


def _integer(params: Mapping[str, Any], name: str, usual: int, least: int, most: int) -> int:
    """Return a number within its bounds, as Telegram's server does."""
    value = plain(params.get(name))
    return min(max(value, least), most) if type(value) is int else usual


def _kinds(value: object) -> Kinds | None:
    found = plain(value)
    if found is None:
        return None
    if not isinstance(found, list):
        raise bad_request("allowed_updates is a JSON list of kinds of updates")
    kinds = sorted({kind for kind in found if isinstance(kind, str) and _KIND.fullmatch(kind)})
    if len(kinds) > MOST_KINDS or (found and not kinds):
        raise bad_request("allowed_updates names no kinds of updates, or too many")
    return tuple(kinds)
