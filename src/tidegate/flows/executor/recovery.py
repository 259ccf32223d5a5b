"""Goes on with sessions that a crash, a failure, a changed flow or an earlier version left behind."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.failure import FailureLog, describe_error
from tidegate.flows.executor.event_handler import EventHandler
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.port import FlowSessionStore, SessionKey, SessionPage, parse_session_key, session_key_in
from tidegate.polling.restorer import SUBSCRIPTIONS_PER_PAGE
from tidegate.polling.subscriptions import StoredSubscription, Subscriptions

log = logging.getLogger("tidegate.flows")

SESSIONS_AT_ONCE: Final = 16
RECOVERY_INTERVAL: Final = 30.0  # seconds between two scans for pending effects
SEEN_SECONDS: Final = 7 * 86_400.0  # longer than anybody repeats a call that was not answered
SEEN_SWEEP_INTERVAL: Final = 3_600.0

Inspect = Callable[[SessionKey], Awaitable[object]]


class FlowRecovery:
    """Runs beside the executor. `inspect` gives a session the chance to follow a changed flow."""

    def __init__(
        self,
        flow: Flow,
        clock: Clock,
        handler: EventHandler,
        *,
        inspect: Inspect,
        legacy: Callable[[str], Subscriptions],
        polls: Sequence[Subscriptions],
    ) -> None:
        self._name = f"flow:{flow.name}"
        self._fingerprint = flow_fingerprint(flow)
        self._clock = clock
        self._handler = handler
        self._inspect = inspect
        self._legacy = legacy
        self._polls = polls
        self._failures = FailureLog(self._name, log)
        self._sweep_at = 0.0  # monotonic

    @property
    def _store(self) -> FlowSessionStore:
        return self._handler.store

    async def run_unfinished(self) -> None:
        """Do pending effects that nobody else comes back to, now and from time to time. Never returns."""
        doing = "read what is unfinished"
        while True:
            try:
                await self._each(self._store.unfinished, self._resume_all)
                await self._sweep()
            except StoreError as error:
                await self._clock.sleep(self._failures.note(error, doing=doing))
            else:
                self._failures.over(doing)
                await self._clock.sleep(RECOVERY_INTERVAL)

    async def catch_up(self) -> None:
        """Once for each declaration of the flow: show it to every session."""
        while True:
            try:
                known = await self._store.fingerprint()
                if known is None:
                    await self._carry_over()
                if known != self._fingerprint:
                    await self._each(self._store.scan, self._inspect_all)
                    await self._store.save_fingerprint(self._fingerprint)
            except Exception as error:  # noqa: BLE001  (whatever fails is tried again)
                await self._clock.sleep(self._failures.note(error, doing="look at all sessions"))
            else:
                return

    async def _each(
        self,
        scan: Callable[[str], Awaitable[SessionPage]],
        act: Callable[[Sequence[SessionKey]], Awaitable[None]],
    ) -> None:
        page = await scan("")
        await act(page.keys)
        while page.cursor:
            page = await scan(page.cursor)
            await act(page.keys)

    async def _inspect_all(self, keys: Sequence[SessionKey]) -> None:
        for key in keys:
            try:
                await self._inspect(key)
            except (FlowError, BadInputError) as error:  # the others are looked at all the same
                log.error("%s", describe_error(error))  # noqa: TRY400
            await self._clock.sleep(0)  # others come first

    async def _resume_all(self, keys: Sequence[SessionKey]) -> None:
        coming = iter(keys)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(SESSIONS_AT_ONCE, len(keys))):
                group.create_task(self._resume_each(coming))

    async def _resume_each(self, keys: Iterator[SessionKey]) -> None:
        for key in keys:
            try:
                await self._handler.resume(key)
            except Exception as error:  # noqa: BLE001  (the others go on; it is looked at again)
                text = "session %s cannot go on, and is tried again: %s"
                log.error(text, key.text, describe_error(error))  # noqa: TRY400

    async def _sweep(self) -> None:
        if self._clock.monotonic() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic() + SEEN_SWEEP_INTERVAL
            await self._store.forget_seen(self._clock.now() - SEEN_SECONDS)

    # Until 1.0: what versions up to 0.15 kept as subscriptions of pollers that did not exist.

    async def _carry_over(self) -> None:
        for part in ("timers", "unfinished"):
            await self._carry(self._legacy(f"{self._name}:{part}"), self._adopt)
        await self._carry(self._legacy(f"{self._name}:events"), self._adopt_seen)
        for subscriptions in self._polls:
            await self._carry(subscriptions, self._adopt_subscriber, keep=True)

    async def _carry(
        self,
        subscriptions: Subscriptions,
        adopt: Callable[[StoredSubscription], Awaitable[None]],
        *,
        keep: bool = False,
    ) -> None:
        number = 0
        while page := await subscriptions.after(number, SUBSCRIPTIONS_PER_PAGE):
            number = page[-1].number
            for one in page:
                try:
                    await adopt(one)
                except BadInputError as error:
                    log.error("%s", describe_error(error))  # noqa: TRY400
            if not keep:
                await subscriptions.remove(page)

    async def _adopt(self, one: StoredSubscription) -> None:
        await self._handler.adopt(parse_session_key(one.subscription.key))

    async def _adopt_seen(self, one: StoredSubscription) -> None:
        key, _, digest = one.subscription.key.rpartition(":")
        await self._handler.adopt(parse_session_key(key), digest)

    async def _adopt_subscriber(self, one: StoredSubscription) -> None:
        await self._handler.adopt(session_key_in(one.subscription))


def flow_fingerprint(flow: Flow) -> str:
    """A digest of everything that a session has going on while it is in a state."""
    declared = [(state.name, state.poll, state.timeout, state.final) for state in flow.states]
    encoded = msgspec.json.encode((flow.lifetime, declared))
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()
