"""Handling an event: the machine decides, it is written, it is done.

One write holds where the session is, which events brought it there, and what is yet to be done. Then that is
done, then crossed off. Whoever comes next does first what is left: so whatever dies in between, nothing is
forgotten, and as each effect is known again, nothing happens twice.
"""

import logging

from tidegate.errors import ClosedError
from tidegate.flows.effects import Pending, Run
from tidegate.flows.events import Begin, Event, TimedOut, WorkDone, WorkFailed
from tidegate.flows.executor.counting import Counts
from tidegate.flows.executor.deciding import (
    due_works,
    is_unrepeated,
    nobody,
    with_pending,
    without_otherwise,
    without_what_is_over,
    without_work,
)
from tidegate.flows.executor.doing import Doer
from tidegate.flows.executor.hearing import Heard
from tidegate.flows.executor.place import Place, place_of
from tidegate.flows.executor.ports import Sessions, Turns
from tidegate.flows.executor.timers import Timers
from tidegate.flows.executor.unfinished import Unfinished
from tidegate.flows.executor.working import Works
from tidegate.flows.flow import Flow
from tidegate.flows.machine import Step, step
from tidegate.flows.model import FlowError
from tidegate.flows.session import Session
from tidegate.reports import reason_of

log = logging.getLogger("tidegate.flows")


class Handling:
    """Of one flow, while `sessions` and `turns` are there."""

    def __init__(
        self,
        flow: Flow,
        *,
        doer: Doer,
        timers: Timers,
        unfinished: Unfinished,
        heard: Heard,
        works: Works,
        counts: Counts,
    ) -> None:
        self._flow = flow
        self._quiet = without_otherwise(flow)
        self._doer = doer
        self._timers = timers
        self._unfinished = unfinished
        self._heard = heard
        self._works = works
        self._counts = counts
        self._kept: tuple[Sessions, Turns] | None = None

    def keep(self, sessions: Sessions, turns: Turns) -> None:
        self._kept = sessions, turns

    @property
    def sessions(self) -> Sessions:
        return self._here()[0]

    @property
    def turns(self) -> Turns:
        return self._here()[1]

    def _here(self) -> tuple[Sessions, Turns]:
        if self._kept is None:
            raise ClosedError(f"flow {self._flow.name} does not run yet: start the bot first")
        return self._kept

    async def handle(
        self, place: Place, event: Event, *, awaited_only: bool = False, once: bool = False
    ) -> bool:
        """See `Executor.handle`. `once`: also if its session has ended, and it comes again."""
        async with self.turns.hold(place.key):
            session = await self.sessions.get(place)
            is_known = (session is not None and event.id in session.recent) or (
                once and await self._heard.knows(place.key, event.id)
            )
            session = await self.finish(place, session)
            flow = self._quiet if awaited_only else self._flow
            decided = Step(session) if is_known else self._decide(flow, session, event)
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
        place = place_of(key)
        async with self.turns.hold(key):
            session = await self.finish(place, await self.sessions.get(place))
            if session is None or not session.pending:
                await self._unfinished.cross_off(key)

    async def begin_with(self, place: Place, session: Session) -> None:
        """Nobody will come back to it after a crash, so it is noted. While it has the turn."""
        await self._unfinished.note(place.key)
        await self.sessions.put(place, session)
        self._counts.begun += 1
        after = await self.finish(place, session)
        if after is None or not after.pending:
            await self._unfinished.cross_off(place.key)

    async def finish(self, place: Place, session: Session | None) -> Session | None:
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

    async def _finish(self, place: Place, session: Session) -> Session | None:
        for one in session.pending:
            if not isinstance(one.effect, Run):
                await self._doer.do(place, session, one)
        if session.ended:
            await self.sessions.drop(place)
            return None
        works = [one.effect for one in due_works(session) if isinstance(one.effect, Run)]
        if not all(self._works.is_under_way(place.key, run) for run in works):
            await self._unfinished.note(place.key)
        after = with_pending(session, due_works(session))
        if after is not session:
            await self.sessions.put(place, after)
        for run in works:
            self._begin_work(place, run)
        return after

    def _decide(self, flow: Flow, session: Session | None, event: Event) -> Step:
        try:
            decided = step(flow, session, event)
        except FlowError:
            self._counts.errors += 1
            raise
        self._counts.events += 1
        return decided

    async def _take(
        self, place: Place, event: Event, before: Session | None, decided: Step
    ) -> Session | None:
        """Write it and do it."""
        after, is_noted = decided.session, False
        if after is None:  # an answer to a press, and nobody to remember it
            for number, effect in enumerate(decided.effects):
                await self._doer.do(place, nobody(self._flow), Pending(event.id, number, effect))
        elif after is not before or isinstance(event, WorkDone | WorkFailed):
            if is_noted := is_unrepeated(event):
                await self._unfinished.note(place.key)
            await self.sessions.put(place, left := without_what_is_over(after, event))
            self._counts.begun += before is None or (isinstance(event, Begin) and after is not before)
            after = await self.finish(place, left)
        if is_noted and not (after is not None and after.pending):
            await self._unfinished.cross_off(place.key)
        return after

    # Work

    def _begin_work(self, place: Place, run: Run) -> None:
        self._works.begin(place.key, run.visit, lambda: self._work(place, run))

    async def _work(self, place: Place, run: Run) -> None:
        async with self.turns.hold(f"{place.key}:work:{run.visit}"):  # not in two processes at once
            session = await self.sessions.get(place)
            if session is None or all(one.effect != run for one in session.pending):
                return
            outcome = await self._works.attempt(place, session, run)
            try:
                await self.handle(place, outcome)
            except FlowError as error:
                log.error("%s", reason_of(error))  # noqa: TRY400
                await self._give_up(place, run, type(error).__name__)

    async def _give_up(self, place: Place, run: Run, reason: str) -> None:
        """The flow cannot use what came of it."""
        try:
            await self.handle(place, self._works.gave_up(run, reason))
        except FlowError as error:
            log.error("%s", reason_of(error))  # noqa: TRY400
            async with self.turns.hold(place.key):
                session = await self.sessions.get(place)
                if session is not None:
                    await self.sessions.put(place, without_work(session, run))
