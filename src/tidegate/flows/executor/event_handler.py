"""Handles one event of a flow: the machine decides, the decision is written, its effects are done."""

import logging

import msgspec

from tidegate.errors import ClosedError
from tidegate.failure import describe_error
from tidegate.flows.effects import PendingEffect, RunWork, Unsubscribe
from tidegate.flows.events import Begin, Expired, FlowEvent, Polled, Signal, TimedOut, WorkDone, WorkFailed
from tidegate.flows.executor.effect_runner import EffectRunner
from tidegate.flows.executor.recovery import UnfinishedSessions
from tidegate.flows.executor.seen_events import SeenEvents
from tidegate.flows.executor.stats import FlowCounts
from tidegate.flows.executor.timers import SessionTimers
from tidegate.flows.executor.work import WorkRunner
from tidegate.flows.flow import Flow
from tidegate.flows.machine import FlowStep, step
from tidegate.flows.model import FlowError
from tidegate.flows.port import FlowSessionStore, SessionKey, SessionLocks, parse_session_key
from tidegate.flows.session import Session


def comes_once(event: FlowEvent) -> bool:
    """Whether nobody may bring it again after a crash. A reversal ends what would bring it; and a timer rings
    again until it is cleared, which is before the last of what it caused is done.
    """
    if isinstance(event, Polled):
        return event.kind == "reversed"
    return isinstance(event, Begin | Signal | WorkDone | WorkFailed | TimedOut | Expired)


def due_works(session: Session) -> tuple[PendingEffect, ...]:
    """The work of the visit that it is on. That of another would come too late."""
    if session.ended:
        return ()
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
    """The work that has an outcome. And, of what came true, the subscription: its poller ends it as soon as
    it was told; were it ended before, nobody would tell it again after a crash.
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
    """The same, but silent about what is out of place."""
    states = tuple(msgspec.structs.replace(state, otherwise="") for state in flow.states)
    return msgspec.structs.replace(flow, otherwise="", states=states)


def blank_session(flow: Flow) -> Session:
    """Stands for a session where there is none."""
    return Session(flow=flow.name, state=flow.initial, visit=0)


log = logging.getLogger("tidegate.flows")


class EventHandler:
    """Of one flow, while `sessions` and `turns` are there."""

    def __init__(
        self,
        flow: Flow,
        *,
        doer: EffectRunner,
        timers: SessionTimers,
        unfinished: UnfinishedSessions,
        heard: SeenEvents,
        works: WorkRunner,
        counts: FlowCounts,
    ) -> None:
        self._flow = flow
        self._quiet = silent_flow(flow)
        self._doer = doer
        self._timers = timers
        self._unfinished = unfinished
        self._heard = heard
        self._works = works
        self._counts = counts
        self._kept: tuple[FlowSessionStore, SessionLocks] | None = None

    def keep(self, sessions: FlowSessionStore, turns: SessionLocks) -> None:
        self._kept = sessions, turns

    @property
    def sessions(self) -> FlowSessionStore:
        return self._here()[0]

    @property
    def turns(self) -> SessionLocks:
        return self._here()[1]

    def _here(self) -> tuple[FlowSessionStore, SessionLocks]:
        if self._kept is None:
            raise ClosedError(f"flow {self._flow.name} does not run yet: start the bot first")
        return self._kept

    async def handle(
        self, place: SessionKey, event: FlowEvent, *, awaited_only: bool = False, once: bool = False
    ) -> bool:
        """See `Executor.handle`. `once`: also if its session has ended, and it comes again."""
        async with self.turns.hold(place.key):
            session = await self.sessions.get(place)
            is_known = (session is not None and event.id in session.recent) or (
                once and await self._heard.knows(place.key, event.id)
            )
            session = await self.finish(place, session)
            flow = self._quiet if awaited_only else self._flow
            decided = FlowStep(session) if is_known else self._decide(flow, session, event)
            is_moved = is_known or bool(decided.effects) or decided.session is not session
            if awaited_only and not is_moved:
                return False
            is_ours = is_moved or session is not None
            session = await self._take(place, event, session, decided)
            if isinstance(event, TimedOut) and (session is None or session.timer is None):
                await self._timers.clear(place.key)  # it has rung
            if once and is_ours and not is_known:
                await self._heard.note(place.key, event.id)
            return is_ours

    async def resume(self, key: str) -> None:
        """Do what a process that died, or failed, has left."""
        place = parse_session_key(key)
        async with self.turns.hold(key):
            session = await self.finish(place, await self.sessions.get(place))
            if session is None or not session.pending:
                await self._unfinished.cross_off(key)

    async def begin_with(self, place: SessionKey, session: Session) -> None:
        """Nobody will come back to it after a crash, so it is noted. While it has the turn."""
        await self._unfinished.note(place.key)
        await self.sessions.put(place, session)
        self._counts.begun += 1
        after = await self.finish(place, session)
        if after is None or not after.pending:
            await self._unfinished.cross_off(place.key)

    async def finish(self, place: SessionKey, session: Session | None) -> Session | None:
        """Do what is pending, and cross it off; work stays pending until it has an outcome. None: it is over.

        While it has the turn.
        """
        if session is None or not session.pending:
            return session
        try:
            return await self._finish(place, session)
        except BaseException:  # an update is not handled again by itself if it failed
            self._unfinished.remember(place.key)
            raise

    async def _finish(self, place: SessionKey, session: Session) -> Session | None:
        for one in session.pending:
            if not isinstance(one.effect, RunWork):
                await self._doer.do(place, session, one)
        if session.ended:
            await self.sessions.drop(place)
            return None
        works = [one.effect for one in due_works(session) if isinstance(one.effect, RunWork)]
        if not all(self._works.is_under_way(place.key, run) for run in works):
            await self._unfinished.note(place.key)
        after = with_pending(session, due_works(session))
        if after is not session:
            await self.sessions.put(place, after)
        for run in works:
            self._begin_work(place, run)
        return after

    def _decide(self, flow: Flow, session: Session | None, event: FlowEvent) -> FlowStep:
        try:
            decided = step(flow, session, event)
        except FlowError:
            self._counts.errors += 1
            raise
        self._counts.events += 1
        return decided

    async def _take(
        self, place: SessionKey, event: FlowEvent, before: Session | None, decided: FlowStep
    ) -> Session | None:
        """Write it and do it."""
        after, is_noted = decided.session, False
        if after is None:  # an answer to a press, and nobody to remember it
            for number, effect in enumerate(decided.effects):
                await self._doer.do(place, blank_session(self._flow), PendingEffect(event.id, number, effect))
        elif after is not before or isinstance(event, WorkDone | WorkFailed):
            if is_noted := comes_once(event):
                await self._unfinished.note(place.key)
            await self.sessions.put(place, left := without_finished(after, event))
            self._counts.begun += before is None or (isinstance(event, Begin) and after is not before)
            after = await self.finish(place, left)
        if is_noted and not (after is not None and after.pending):
            await self._unfinished.cross_off(place.key)
        return after

    # Work

    def _begin_work(self, place: SessionKey, run: RunWork) -> None:
        self._works.begin(place.key, run.visit, lambda: self._work(place, run))

    async def _work(self, place: SessionKey, run: RunWork) -> None:
        async with self.turns.hold(f"{place.key}:work:{run.visit}"):  # not in two processes at once
            session = await self.sessions.get(place)
            if session is None or all(one.effect != run for one in session.pending):
                return
            outcome = await self._works.attempt(place, session, run)
            try:
                await self.handle(place, outcome)
            except FlowError as error:
                log.error("%s", describe_error(error))  # noqa: TRY400
                await self._give_up(place, run, type(error).__name__)

    async def _give_up(self, place: SessionKey, run: RunWork, reason: str) -> None:
        """The flow cannot use what came of it."""
        try:
            await self.handle(place, self._works.gave_up(run, reason))
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            async with self.turns.hold(place.key):
                session = await self.sessions.get(place)
                if session is not None:
                    await self.sessions.put(place, without_work(session, run))
