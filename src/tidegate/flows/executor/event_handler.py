"""Handles one event of a flow: the machine decides, the decision is committed, its effects are done.

One commit holds the session, its timer, the events that brought it there and the effects that are yet to be
done. The effects follow, then a second commit clears them. Effects that a crash left behind are done before
the next event, or by the recovery; each has a dedup key, so nothing happens twice.
"""

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.errors import ClosedError
from tidegate.failure import describe_error
from tidegate.flows.effects import ClearTimer, PendingEffect, RunWork, SetTimer, Unsubscribe
from tidegate.flows.events import Begin, FlowEvent, Polled, TimedOut, WorkDone, WorkFailed
from tidegate.flows.executor.effect_runner import EffectRunner
from tidegate.flows.executor.stats import FlowCounts
from tidegate.flows.executor.work import WorkRunner
from tidegate.flows.flow import Flow
from tidegate.flows.machine import FlowStep, step
from tidegate.flows.model import FlowError
from tidegate.flows.port import FlowSessionStore, SessionConflictError, SessionKey, StoredSession
from tidegate.flows.session import Session

log = logging.getLogger("tidegate.flows")

CONFLICT_RETRIES: Final = 2


class EventHandler:
    """Handles the events of one flow, between `open` and the end of the store."""

    def __init__(
        self,
        flow: Flow,
        *,
        effects: EffectRunner,
        works: WorkRunner,
        counts: FlowCounts,
        on_timer: Callable[[float], None],
        now: Callable[[], float],
    ) -> None:
        self._flow = flow
        self._silent_flow = silent_flow(flow)
        self._effects = effects
        self._works = works
        self._counts = counts
        self._on_timer = on_timer
        self._now = now
        self._store: FlowSessionStore | None = None

    def open(self, store: FlowSessionStore) -> None:
        self._store = store

    def unreadable(self) -> int:
        """Return how many sessions could not be read, in this process."""
        return 0 if self._store is None else self._store.unreadable()

    @property
    def store(self) -> FlowSessionStore:
        if self._store is None:
            raise ClosedError(f"flow {self._flow.name} does not run yet: start the bot first")
        return self._store

    async def handle(
        self, key: SessionKey, event: FlowEvent, *, awaited_only: bool = False, once: bool = False
    ) -> bool:
        """See `FlowRunner.handle`. `once`: the event is known again even after its session has ended."""
        for _ in range(CONFLICT_RETRIES):
            with suppress(SessionConflictError):  # a process that lost its lock: the session is loaded again
                return await self._handle(key, event, awaited_only=awaited_only, once=once)
        return await self._handle(key, event, awaited_only=awaited_only, once=once)

    async def _handle(self, key: SessionKey, event: FlowEvent, *, awaited_only: bool, once: bool) -> bool:
        seen = event_digest(event.id) if once else None
        async with self.store.hold(key.text):
            stored = await self.store.load(key, seen)
            is_known = stored.is_seen or (stored.session is not None and event.id in stored.session.recent)
            stored = await self._finish(key, stored)
            flow = self._silent_flow if awaited_only else self._flow
            before = stored.session
            decided = FlowStep(before) if is_known else self._decide(flow, before, event)
            is_moved = is_known or bool(decided.effects) or decided.session is not before
            if awaited_only and not is_moved:
                return False
            is_ours = is_moved or before is not None
            await self._apply(key, event, stored, decided, seen if is_ours and not is_known else None)
            return is_ours

    async def resume(self, key: SessionKey) -> None:
        """Do the effects that a process which died, or failed, has left."""
        async with self.store.hold(key.text):
            await self._finish(key, await self.store.load(key))

    async def begin_with(self, key: SessionKey, session: Session) -> bool:
        """Store this session if there is none. One that waits for the same is subscribed again."""
        async with self.store.hold(key.text):
            stored = await self._finish(key, await self.store.load(key))
            if stored.session is None:
                self._counts.begun += 1
                await self._finish(key, await self._commit(key, stored, session))
                return True
            if (held := stored.session.held) is not None and held == session.held:
                await self._effects.do(key, stored.session, PendingEffect("restored", 0, held))
            return False

    async def adopt(self, key: SessionKey, seen: str | None = None) -> None:
        """Write a session that was kept elsewhere, and do its pending effects. `seen`: digest of an event."""
        async with self.store.hold(key.text):
            stored = await self.store.load(key)
            if stored.session is not None or seen is not None:
                await self._finish(key, await self._commit(key, stored, stored.session, seen))

    async def give_up_timeout(self, key: SessionKey, at: float) -> None:
        """The flow failed on the timer of that time. The end of the lifetime still comes."""
        async with self.store.hold(key.text):
            stored = await self.store.load(key)
            if (session := stored.session) is None or session.timer != at:
                return
            expires_at = session.expires_at
            if expires_at is not None and expires_at <= at:
                expires_at = None  # the next event sets it again, and ends the session
            await self._commit(key, stored, msgspec.structs.replace(session, due=None, expires_at=expires_at))

    # The steps of one event. Each needs the lock of the session.

    def _decide(self, flow: Flow, session: Session | None, event: FlowEvent) -> FlowStep:
        try:
            decided = step(flow, session, event)
        except FlowError:
            self._counts.errors += 1
            raise
        self._counts.events += 1
        return decided

    async def _apply(
        self, key: SessionKey, event: FlowEvent, stored: StoredSession, decided: FlowStep, seen: str | None
    ) -> None:
        before, after = stored.session, decided.session
        if after is None:  # the answer to a press of an old button
            for number, effect in enumerate(decided.effects):
                await self._effects.do(
                    key, blank_session(self._flow), PendingEffect(event.id, number, effect)
                )
            if isinstance(event, TimedOut) and stored.version:  # its session is gone: it would ring for ever
                await self.store.commit(key, None, expected=stored.version)
        elif after is not before or seen is not None or isinstance(event, WorkDone | WorkFailed):
            stored = await self._commit(key, stored, without_finished(after, event), seen)
            self._counts.begun += before is None or (isinstance(event, Begin) and after is not before)
            await self._finish(key, stored)

    async def _finish(self, key: SessionKey, stored: StoredSession) -> StoredSession:
        """Do the pending effects and clear them. Work stays pending until it has an outcome."""
        session = stored.session
        if session is None or not (session.pending or session.ended):
            return stored
        for one in session.pending:
            if not isinstance(one.effect, RunWork):
                await self._effects.do(key, session, one)
        if session.ended:
            await self.store.commit(key, None, expected=stored.version)
            return StoredSession()
        works = due_works(session)
        if works != session.pending:
            stored = await self._commit(key, stored, with_pending(session, works))
        for one in works:
            if isinstance(one.effect, RunWork):
                self._begin_work(key, one.effect)
        return stored

    async def _commit(
        self, key: SessionKey, stored: StoredSession, session: Session | None, seen: str | None = None
    ) -> StoredSession:
        if session is not None:  # the store keeps the timer with the session
            kept = (one for one in session.pending if not isinstance(one.effect, SetTimer | ClearTimer))
            session = with_pending(session, tuple(kept))
        version = await self.store.commit(key, session, expected=stored.version, seen=seen, at=self._now())
        if session is not None and session.timer is not None:
            self._on_timer(session.timer)
        return StoredSession(session, version)

    # Work

    def _begin_work(self, key: SessionKey, run: RunWork) -> None:
        self._works.begin(key, run.visit, lambda: self._work(key, run))

    async def _work(self, key: SessionKey, run: RunWork) -> None:
        async with self.store.hold(f"{key.text}:work:{run.visit}"):  # not in two processes at once
            session = (await self.store.load(key)).session
            if session is None or all(one.effect != run for one in session.pending):
                return
            outcome = await self._works.attempt(key, session, run)
            try:
                await self.handle(key, outcome)
            except FlowError as error:
                log.error("%s", describe_error(error))  # noqa: TRY400
                await self._fail_work(key, run, type(error).__name__)

    async def _fail_work(self, key: SessionKey, run: RunWork, reason: str) -> None:
        """The flow cannot use the result."""
        try:
            await self.handle(key, self._works.failure(run, reason))
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            async with self.store.hold(key.text):
                stored = await self.store.load(key)
                if stored.session is not None:
                    await self._commit(key, stored, without_work(stored.session, run))


# Pure


def event_digest(event: str) -> str:
    """A short name for an event, however long the application's own is."""
    return hashlib.blake2b(event.encode(), digest_size=12).hexdigest()


def due_works(session: Session) -> tuple[PendingEffect, ...]:
    """The work of the current visit. The result of an earlier visit's work would come too late."""
    return tuple(
        one
        for one in session.pending
        if isinstance(one.effect, RunWork) and one.effect.visit == session.visit
    )


def with_pending(session: Session, pending: tuple[PendingEffect, ...]) -> Session:
    return session if pending == session.pending else msgspec.structs.replace(session, pending=pending)


def without_work(session: Session, run: RunWork) -> Session:
    return with_pending(session, tuple(one for one in session.pending if one.effect != run))


def without_finished(session: Session, event: FlowEvent) -> Session:
    """The session without effects that this event makes superfluous.

    Work is done when it has an outcome. A subscription whose news this is, is ended by its poller after the
    callback; if it ended before, nobody would repeat the news after a crash.
    """
    match event:
        case WorkDone() | WorkFailed():
            return without_work(session, RunWork(event.work, event.visit))
        case Polled(kind="met" | "gone"):
            ends = Unsubscribe(event.poll, event.key)
            left = (one for one in session.pending if (one.event, one.effect) != (event.id, ends))
            return with_pending(session, tuple(left))
        case _:
            return session


def silent_flow(flow: Flow) -> Flow:
    """The same flow, without the texts for input that is out of place."""
    states = tuple(msgspec.structs.replace(state, otherwise="") for state in flow.states)
    return msgspec.structs.replace(flow, otherwise="", states=states)


def blank_session(flow: Flow) -> Session:
    """Stands for a session where there is none."""
    return Session(flow=flow.name, state=flow.initial, visit=0)
