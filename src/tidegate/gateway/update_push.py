"""Posts the updates of readers that have set a webhook at the gateway: one at a time for each, in order."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from tidegate.clock import Clock
from tidegate.delivery.transport import NoAnswer, RawAnswer
from tidegate.errors import StoreError
from tidegate.failure import pause_after, scrub
from tidegate.gateway.answers import JSON, bad_request
from tidegate.gateway.upstream_updates import FeedFiller, LossLog
from tidegate.inbound.update_feed import FedUpdate, FeedPage, PushTarget, ReadRequest, UpdateFeed
from tidegate.leader_lease import LeaderLease
from tidegate.lifecycle import GateCore
from tidegate.loopback import is_loopback
from tidegate.model import BotId
from tidegate.network_errors import network_failure
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.gateway")

LOOK_EVERY: Final = (
    5.0  # seconds between two looks for readers that other processes, or earlier ones, have set
)
IDLE_WAIT: Final = 30.0  # seconds without an update after which a reader is noted as living again
ANSWER_WITHIN: Final = aiohttp.ClientTimeout(total=60.0, sock_connect=10.0)
LARGEST_ANSWER: Final = 65_536  # bytes
LONGEST_URL: Final = 2_048
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  (its name)

# url, headers, body → the answer.
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[RawAnswer | NoAnswer]]


# Makes the call that is in an answer to a post.
Reply = Callable[[BotId, Mapping[str, Any]], Awaitable[None]]


class HttpPost:
    """Posts with one pool of connections. Follows no redirects: they could lead to any host."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> RawAnswer | NoAnswer:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity", "User-Agent": "tidegate"},
                auto_decompress=False,
                trust_env=False,
                timeout=ANSWER_WITHIN,
            )
        try:
            async with self._session.post(url, headers=headers, data=body, allow_redirects=False) as answer:
                content = await answer.content.read(LARGEST_ANSWER)
                return RawAnswer(answer.status, answer.headers.get("Content-Type", ""), content)
        except TimeoutError:
            return NoAnswer(left=True, reason="timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NoAnswer(left=True, reason=network_failure(error))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def check_target(url: str, secret: object, allowed: frozenset[str]) -> PushTarget:
    """Return where updates go. Raises ApiRefusal (400) for a host that is neither loopback nor allowed.

    Otherwise anybody with the token of a bot could have this machine post to hosts that only it reaches.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # reading an impossible port raises
    except ValueError:
        raise bad_request("bad webhook: invalid webhook URL specified") from None
    if parts.scheme not in {"http", "https"} or not host or len(url) > LONGEST_URL:
        raise bad_request("bad webhook: an HTTP URL must be provided for webhook")
    if not is_loopback(host) and host not in allowed:
        raise bad_request(
            f"bad webhook: the gateway posts to this machine only: start it with --allow-webhook {host[:100]}"
        )
    if secret is None or secret == "":
        return PushTarget(url)
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        raise bad_request("secret token contains unallowed characters")
    return PushTarget(url, secret)


class PushParts(NamedTuple):
    """The parts of the gateway that posting needs."""

    core: GateCore
    feed: UpdateFeed
    upstream: FeedFiller
    losses: LossLog
    post: Post
    on_posted: Callable[[BotId, FedUpdate], None]  # called before an update is posted
    reply: Reply


class UpdatePush:
    """One task for each reader with a target. Of several processes one posts for a reader."""

    def __init__(self, parts: PushParts) -> None:
        self._parts = parts
        self._clock: Clock = parts.core.clock
        self._readers: dict[tuple[BotId, str], ReaderPush] = {}
        self._unknown: set[BotId] = set()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        self._tasks.supervise(self._look, "what looks for webhooks of readers", self._clock)

    async def stop(self) -> None:
        await self._tasks.stop()

    def changed(self, bot: BotId, name: str) -> None:
        """The target of a reader was set or taken away."""
        if (reader := self._readers.get((bot, name))) is not None:
            reader.begin_anew()
        else:
            self._begin(bot, name)

    async def _look(self) -> None:
        """Find readers whose target was set by other processes, or before this one began."""
        feed = self._parts.feed
        while True:
            try:
                for bot in await feed.bots():
                    for reader in await feed.readers(bot):
                        if reader.target is not None:
                            self._begin(bot, reader.name)
            except StoreError as error:
                log.debug("%s", error)  # those that post say so
            await self._clock.sleep(LOOK_EVERY)

    def _begin(self, bot: BotId, name: str) -> None:
        if (bot, name) in self._readers:
            return
        if bot not in self._parts.core.sender.bots:
            if bot not in self._unknown:
                log.warning(
                    "updates of bot %s wait for the webhook of its reader %s: the token is not known here."
                    " Register the bot (tidegate bot add), or make a call with its token",
                    bot,
                    name,
                )
            self._unknown.add(bot)
            return
        self._unknown.discard(bot)
        reader = self._readers[bot, name] = ReaderPush(self._parts, bot, name)
        loop = self._tasks.supervise(reader.run, f"what posts to reader {name} of bot {bot}", self._clock)
        loop.task.add_done_callback(lambda _: self._readers.pop((bot, name), None))


class ReaderPush:
    """Posts to one reader until its target is taken away. An update is repeated until the answer is 2xx."""

    def __init__(self, parts: PushParts, bot: BotId, name: str) -> None:
        self._parts = parts
        self._clock: Clock = parts.core.clock
        self._bot = bot
        self._name = name
        self._wake = asyncio.Event()  # there may be an update
        self._anew = asyncio.Event()
        self._lease = LeaderLease(parts.feed.leases, self._clock, f"push:{bot}:{name}", log=log)
        self._failures = 0

    def begin_anew(self) -> None:
        """The target has changed: do not wait for the next try at the old one."""
        self._wake.set()
        self._anew.set()

    async def run(self) -> None:
        unwatch = self._parts.feed.watch(self._bot, self._wake.set)
        try:
            confirmed: int | None = None
            while (page := await self._read(confirmed)) is not None:
                confirmed = None
                if not page.updates:
                    await self._wait(IDLE_WAIT)
                elif page.target is not None and await self._deliver(page.updates[0], page.target):
                    confirmed = page.updates[0].number + 1
                else:
                    await self._wait(pause_after(self._failures))
        finally:
            unwatch()
            await self._lease.give_up()

    async def _read(self, confirmed: int | None) -> FeedPage | None:
        """Confirm what was posted, and return what comes next; None if there is no target any more."""
        request = ReadRequest(offset=confirmed, limit=1, pushes=True)
        while True:
            await self._lease.hold()
            access = self._parts.core.sender.bots.get(self._bot)
            if access is None:
                return None  # the bot was removed
            self._wake.clear()
            self._anew.clear()
            try:
                page = await self._parts.feed.read(self._bot, self._name, request)
            except StoreError as error:
                self._fail("the store cannot be reached", str(error))
                await self._clock.sleep(pause_after(self._failures))
                continue
            self._parts.losses.note(self._bot, page.dropped)
            self._parts.upstream.need(self._bot, access, 2 * IDLE_WAIT)
            return page if page.state == "ok" else None

    async def _deliver(self, update: FedUpdate, target: PushTarget) -> bool:
        """Post once. Return whether the answer was 2xx; a call in it is made, as Telegram does."""
        headers = {"Content-Type": JSON}
        if target.secret is not None:
            headers[_SECRET_HEADER] = target.secret
        self._parts.on_posted(self._bot, update)
        answer = await self._parts.post(target.url, headers, update.content())
        error = _error_of(answer)
        if isinstance(answer, NoAnswer) or error:
            self._fail("its webhook does not take updates", error)
            with suppress(StoreError):  # it is only shown by getWebhookInfo
                await self._parts.feed.note_error(self._bot, self._name, target.url, error)
            return False
        if self._failures:
            log.warning("reader %s of bot %s is posted to again", self._name, self._bot)
        self._failures = 0
        if (call := _call_in(answer)) is not None:
            await self._parts.reply(self._bot, call)
        return True

    def _fail(self, what: str, why: str) -> None:
        if not self._failures:
            text = "reader %s of bot %s: %s, and is tried again: %s"
            log.warning(text, self._name, self._bot, what, scrub(why))
        self._failures += 1

    async def _wait(self, seconds: float) -> None:
        """Wait for an update. After a failure, new ones are no reason to hurry."""
        event = self._anew if self._failures else self._wake
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await event.wait()


def _error_of(answer: RawAnswer | NoAnswer) -> str:
    """Return why a post has failed, in Telegram's words; empty if it has not."""
    if isinstance(answer, NoAnswer):
        return f"Connection failed: {answer.reason}"
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return ""
    phrase = HTTPStatus(answer.status).phrase if answer.status in set(HTTPStatus) else ""
    return f"Wrong response from the webhook: {answer.status} {phrase}".rstrip()


def _call_in(answer: RawAnswer) -> Mapping[str, Any] | None:
    if not answer.content_type.startswith(JSON) or b'"method"' not in answer.body:
        return None
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("method"), str) else None
