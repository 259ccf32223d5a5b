"""Brings the updates of bots from Telegram into the feed, by one long poll of each bot.

A bot is polled while somebody reads it; of several processes one polls. Updates are in the feed before
Telegram is told that they arrived.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from tidegate.clock import Clock
from tidegate.delivery.bot_api import RawCall, decode_answer
from tidegate.delivery.sender import LATE_AFTER, BotAccess
from tidegate.delivery.transport import NoAnswer
from tidegate.errors import BadInputError, StoreError
from tidegate.events import UpdateReceived
from tidegate.failure import FailureLog
from tidegate.gateway.answers import JSON, ApiRefusal, encode, no_answer
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.inbound.long_polling import LongPoller, UpdateSink
from tidegate.inbound.update_feed import Dropped, FeedWatchers, UpdateFeed, new_update, wanted_kinds
from tidegate.inbound.updates import Json
from tidegate.inbound.webhook_request import NOT_FOUND, WebhookRequest, WebhookResponse
from tidegate.lifecycle import GateCore
from tidegate.model import BotId
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.gateway")

POLL_SECONDS: Final = 30  # of one long poll
WANTED_FOR: Final = 60.0  # seconds after its last reader in which a bot is still polled
LOSS_LOG_INTERVAL: Final = 60.0  # seconds after a log line in which losses like it are only counted
MOST_IN_POLL: Final = 100


class FeedFiller(Protocol):
    """Keeps the feeds of bots filled."""

    def need(self, bot: BotId, access: BotAccess, seconds: float) -> None:
        """Somebody reads this bot, for so many seconds from now on."""

    def confirm_before(self, bot: BotId, offset: int) -> None:
        """Before the first `need`: the only reader of the bot has read the updates below from Telegram."""

    async def ask_for_kinds(self, bot: BotId) -> None:
        """The kinds of a reader have changed."""

    def is_fresh(self, bot: BotId) -> bool:
        """Return whether what waited at Telegram when the bot was first needed has come."""
        ...

    def problem(self, bot: BotId) -> ApiRefusal | None:
        """Return why no updates come, as a reader is told."""
        ...

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back when one of these two may have changed, until the result is called."""
        ...

    async def free(self, bot: BotId, access: BotAccess) -> None:
        """Take away a webhook that prevents polling. Raises ApiRefusal."""

    async def accept_webhook(self, request: WebhookRequest) -> WebhookResponse | None:
        """Store an update that Telegram has posted. None if the client has gone."""
        ...

    async def stop(self) -> None: ...


class FeedSink(UpdateSink):
    """Stores the updates of a bot in the feed."""

    def __init__(self, bot: BotId, feed: UpdateFeed, core: GateCore, losses: "LossLog") -> None:
        self.leases = feed.leases
        self._bot = bot
        self._feed = feed
        self._events = core.events
        self._losses = losses

    async def has_room(self) -> bool:
        return True  # the oldest updates make room: a slow reader holds up nobody else

    async def accept(self, updates: list[Json]) -> int:
        readable = []
        for update in updates:
            try:
                readable.append((update, new_update(update)))
            except BadInputError as error:
                log.warning("an update of bot %s is left out: %s", self._bot, error)
        appended = await self._feed.append(self._bot, [new for _, new in readable])
        self._losses.note(self._bot, appended.dropped)
        if self._events.has(UpdateReceived):
            for (update, _), is_new in zip(readable, appended.is_new, strict=True):
                if is_new:
                    self._events.publish(UpdateReceived(self._bot, partial(dict[str, Any], update)))
        return sum(appended.is_new)


class LossLog:
    """Logs which readers lose updates, a line a minute for each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unlogged: dict[tuple[BotId, str], int] = {}  # of each that was logged in the last minute

    def note(self, bot: BotId, dropped: Dropped) -> None:
        for name in dropped.forgotten:
            log.info("reader %s of bot %s was not seen for a day, and is forgotten", name, bot)
        for name, count in dropped.lost.items():
            if (bot, name) in self._unlogged:
                self._unlogged[bot, name] += count
            else:
                self._unlogged[bot, name] = 0
                self._clock.call_later(LOSS_LOG_INTERVAL, partial(self._sum_up, bot, name))
                self._log(bot, name, count)

    def _sum_up(self, bot: BotId, name: str) -> None:
        if count := self._unlogged.pop((bot, name)):
            self._log(bot, name, count)

    @staticmethod
    def _log(bot: BotId, name: str, count: int) -> None:
        log.warning(
            "reader %s of bot %s has lost %d updates: it reads too slowly, or not at all", name, bot, count
        )


class UpstreamCallError(Exception):
    """Telegram has refused a call of the gateway, or did not answer."""

    def __init__(self, refusal: ApiRefusal) -> None:
        super().__init__(refusal.text or HTTPStatus(refusal.code).phrase)
        self.refusal = refusal
        self.status = refusal.code
        self.retry_after = refusal.retry_after


class UpstreamCalls:
    """Calls about updates. They take no turn: Telegram does not count them."""

    def __init__(self, core: GateCore, client: ForwardingClient) -> None:
        self._clock = core.clock
        self._client = client
        self._answer_within = core.settings.telegram_timeout

    async def call(
        self,
        access: BotAccess,
        method: str,
        params: Mapping[str, Any],
        seconds: float = 0.0,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Return the result; Telegram has so many seconds more for it. Raises UpstreamCallError."""
        answer = await self._client.forward(
            access.token,
            RawCall(method, JSON, (encode(params),)),
            api_url=access.api_url,
            deadline=self._clock.monotonic() + LATE_AFTER,
            timeout=seconds + self._answer_within,
        )
        if isinstance(answer, NoAnswer):
            raise UpstreamCallError(no_answer(answer))
        body = decode_answer(answer)
        if body is None:
            text = f"Telegram's answer to {method} is none ({answer.status})"
            raise UpstreamCallError(ApiRefusal(HTTPStatus.BAD_GATEWAY, text))
        if body["ok"]:
            return body.get("result")
        raise UpstreamCallError(_refusal(answer.status, body))


def _refusal(status: int, body: Mapping[str, Any]) -> ApiRefusal:
    code = body.get("error_code", status)
    code = code if isinstance(code, int) and code in set(HTTPStatus) else HTTPStatus.BAD_GATEWAY
    parameters = body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    text = str(body.get("description") or "").removeprefix(f"{HTTPStatus(code).phrase}").lstrip(": ")
    return ApiRefusal(code, text, retry_after=wait if isinstance(wait, int) else None)


class WantedBot:
    """A bot whose updates somebody needs."""

    def __init__(self, access: BotAccess) -> None:
        self.access = access
        self.until = 0.0  # monotonic: it is needed till then
        self.running: asyncio.Task[None] | None = None
        self.is_fresh = False
        self.problem: ApiRefusal | None = None
        self.asked_kinds: list[str] | None = None
        self.asks_again = False  # other kinds were wanted while it was asking
        self.try_anew = asyncio.Event()  # do not wait for the next try


class FillingTasks(FeedFiller):
    """The base of both ways: one task for each bot, while it is needed."""

    def __init__(self, core: GateCore, feed: UpdateFeed, client: ForwardingClient, losses: LossLog) -> None:
        self._core = core
        self._clock = core.clock
        self._feed = feed
        self._losses = losses
        self._calls = UpstreamCalls(core, client)
        self._bots: dict[BotId, WantedBot] = {}
        self._watchers = FeedWatchers()
        self._tasks = BackgroundTasks()

    def need(self, bot: BotId, access: BotAccess, seconds: float) -> None:
        state = self._bots.setdefault(bot, WantedBot(access))
        if state.access.token != access.token:
            state.asked_kinds = None  # a webhook has a secret that is made of the token
        state.access = access
        state.until = max(state.until, self._clock.monotonic() + seconds + WANTED_FOR)
        if self._has_work(state) and (state.running is None or state.running.done()):
            state.is_fresh = False
            run = partial(self._run, bot, state)
            loop = self._tasks.supervise(run, f"what fetches the updates of bot {bot}", self._clock)
            state.running = loop.task

    def is_fresh(self, bot: BotId) -> bool:
        state = self._bots.get(bot)
        return state is not None and state.is_fresh

    def problem(self, bot: BotId) -> ApiRefusal | None:
        state = self._bots.get(bot)
        return None if state is None else state.problem

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        return self._watchers.add(bot, callback)

    async def stop(self) -> None:
        await self._tasks.stop()

    def _has_work(self, state: WantedBot) -> bool:  # noqa: ARG002  (of others)
        return True

    async def _run(self, bot: BotId, state: WantedBot) -> None:
        raise NotImplementedError

    async def _wanted_kinds(self, bot: BotId) -> list[str]:
        return wanted_kinds([reader.kinds for reader in await self._feed.readers(bot)])

    def _works(self, bot: BotId, state: WantedBot) -> None:
        if not state.is_fresh or state.problem is not None:
            state.is_fresh, state.problem = True, None
            self._watchers.tell(bot)

    async def _fail(
        self, bot: BotId, state: WantedBot, error: UpstreamCallError | StoreError, seconds: float
    ) -> None:
        """Have readers told, and pause."""
        if isinstance(error, UpstreamCallError):  # readers meet a store that is away by themselves
            state.problem = error.refusal
            self._watchers.tell(bot)
        state.try_anew.clear()
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await state.try_anew.wait()


class UpstreamPolls(FillingTasks):
    """One long poll of each bot."""

    def __init__(self, core: GateCore, feed: UpdateFeed, client: ForwardingClient, losses: LossLog) -> None:
        super().__init__(core, feed, client, losses)
        self._confirmed: dict[BotId, int] = {}
        self._fetching: dict[BotId, asyncio.Task[Any]] = {}

    def confirm_before(self, bot: BotId, offset: int) -> None:
        self._confirmed[bot] = offset

    async def ask_for_kinds(self, bot: BotId) -> None:
        fetching, state = self._fetching.get(bot), self._bots.get(bot)
        if fetching is not None and state is not None and state.asked_kinds is not None:
            kinds = await self._wanted_kinds(bot)
            if kinds != state.asked_kinds:
                fetching.cancel()  # nothing is lost: what comes is not confirmed

    async def free(self, bot: BotId, access: BotAccess) -> None:
        state = self._bots.get(bot)
        if state is not None and state.is_fresh and state.problem is None:
            return  # it is polled: there is none
        try:
            await self._calls.call(access, "deleteWebhook", {})
        except UpstreamCallError as error:
            raise error.refusal from None
        if state is not None:
            state.problem = None
            state.try_anew.set()

    async def accept_webhook(self, request: WebhookRequest) -> WebhookResponse | None:  # noqa: ARG002  (the port's)
        return NOT_FOUND

    async def _run(self, bot: BotId, state: WantedBot) -> None:
        while self._clock.monotonic() < state.until:  # it may be needed again while the lease is given back
            await self._poll(bot, state)

    async def _poll(self, bot: BotId, state: WantedBot) -> None:
        """Poll for as long as the bot is needed."""

        def another_polls() -> None:
            self._works(bot, state)

        sink = FeedSink(bot, self._feed, self._core, self._losses)
        poller = LongPoller(bot, sink, self._clock, on_wait=another_polls)
        failures = FailureLog(f"the gateway (bot {bot})", log)
        if offset := self._confirmed.pop(bot, 0):
            poller.confirm_before(offset)
        try:
            while (left := state.until - self._clock.monotonic()) > 0:
                try:
                    async with self._clock.timeout(left):
                        await poller.lease.hold()
                    await poller.poll(partial(self._fetch, bot, state))
                except TimeoutError:
                    continue
                except (UpstreamCallError, StoreError) as error:
                    await self._fail(bot, state, error, failures.note(error, doing="fetch updates"))
                else:
                    failures.over("fetch updates")
        finally:
            await poller.stop()

    async def _fetch(self, bot: BotId, state: WantedBot, offset: int | None) -> list[Json]:
        left = math.ceil(state.until - self._clock.monotonic())
        # The first poll does not wait: who asks briefly gets what is there.
        seconds = max(0, min(POLL_SECONDS, left)) if state.is_fresh else 0
        kinds = state.asked_kinds = await self._wanted_kinds(bot)
        params = {"limit": MOST_IN_POLL, "timeout": seconds, "allowed_updates": kinds}
        if offset is not None:
            params["offset"] = offset
        call = self._calls.call(state.access, "getUpdates", params, seconds)
        fetching = self._fetching[bot] = self._tasks.start(call, "polls Telegram", awaited=True)
        try:
            found = await fetching
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not fetching.cancelled():
                fetching.cancel()
                raise
            return []  # other kinds are wanted: ask anew
        finally:
            del self._fetching[bot]
        if not found:  # else when it is stored
            self._works(bot, state)
            return []
        state.problem = None
        return [update for update in found if isinstance(update, dict)]
