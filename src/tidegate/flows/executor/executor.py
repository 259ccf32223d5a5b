"""The executor of one flow: what it is made of, and what can happen to its sessions."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidegate.errors import ClosedError
from tidegate.failure import describe_error
from tidegate.flows.effects import PendingEffect
from tidegate.flows.events import Begin, Expired, FlowEvent, Polled, Signal, TimedOut
from tidegate.flows.executor.effect_runner import EffectRunner, OnUnknown
from tidegate.flows.executor.event_handler import EventHandler
from tidegate.flows.executor.polls import MakePoller, make_polls
from tidegate.flows.executor.recovery import FlowCatchUp, UnfinishedSessions
from tidegate.flows.executor.seen_events import SeenEvents
from tidegate.flows.executor.stats import FlowCounts, FlowStats
from tidegate.flows.executor.timers import SessionTimers
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction, WorkRunner
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.flows.port import (
    FlowGate,
    FlowSessionStore,
    SessionKey,
    SessionLocks,
    parse_session_key,
    session_key_in,
)
from tidegate.flows.session import Session
from tidegate.flows.upkeep import subscription, upkeep
from tidegate.outbox.effect_keys import effect_key
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import News, Notify, Subscription

log = logging.getLogger("tidegate.flows")

WORK_GRACE: Final = 5.0  # seconds that work has to end when the executor stops


class FlowRunner:
    """Between `start` and `stop`, while the gate is open; pollers run while the gate delivers.

    Raises BadInputError at once if the flow has a problem, or names a work or a poll that was not given.
    """

    def __init__(
        self,
        flow: Flow,
        gate: FlowGate,
        *,
        work: Mapping[str, WorkFunction] | None = None,
        pollers: Mapping[str, Poller | MakePoller] | None = None,
        batch_polling: Mapping[str, Any] | None = None,
        in_batches: bool = True,
        restore: bool = True,
        tries: int = WORK_TRIES,
        on_unknown: OnUnknown = "resend",
    ) -> None:
        self.flow = flow
        self.clock = clock = gate.clock
        self.polls = make_polls(
            flow,
            gate,
            self._teller_of,
            config=batch_polling,
            in_batches=in_batches,
            given=pollers or {},
            restore=restore,
        )
        self._works = WorkRunner(work or {}, gate, clock, flow=flow.name, tries=tries)
        flow.check(works=self._works.functions.keys(), polls=self.polls.pollers.keys())
        for poller in self.polls.pollers.values():
            gate.poll(poller)
        kept = f"flow:{flow.name}"
        self._counts = FlowCounts()
        self._timers = SessionTimers(timers := gate.subscriptions(f"{kept}:timers"), clock, self._ring)
        self._unfinished = UnfinishedSessions(gate.subscriptions(f"{kept}:unfinished"), clock, self._resume)
        self._heard = SeenEvents(events := gate.subscriptions(f"{kept}:events"), clock)
        self._catching_up = FlowCatchUp(flow, clock, marks=events, timers=timers, polls=self.polls.kept)
        self._doer = EffectRunner(flow, gate, self.polls, self._timers, self._counts, on_unknown=on_unknown)
        self._handling = EventHandler(
            flow,
            doer=self._doer,
            timers=self._timers,
            unfinished=self._unfinished,
            heard=self._heard,
            works=self._works,
            counts=self._counts,
        )
        self._started = asyncio.Event()
        self._is_over = False
        self._looking: asyncio.Task[None] | None = None
        self._own: list[Poller] = []  # that the gate does not run: it delivered before it was told of them

    async def start(self, sessions: FlowSessionStore, turns: SessionLocks) -> None:
        """From here on sessions are kept there, and nobody else changes them without his turn."""
        if not any(map(self.flow.begins_with, self.flow.commands)):
            log.warning("no command begins flow %s: nobody gets into it but by begin()", self.flow.name)
        self._handling.keep(sessions, turns)
        self._is_over = False
        self._started.set()
        self._own = [poller for poller in self.polls.pollers.values() if not poller.is_running]
        for poller in self._own:
            await poller.start()
        self._timers.start()
        self._unfinished.start()
        self._looking = asyncio.create_task(
            self._catching_up.run(self._look), name=f"tidegate: flow {self.flow.name} catches up"
        )

    async def stop(self) -> None:
        """What is not done is done after the next start."""
        if not self._started.is_set():
            return
        self._started.clear()
        self._is_over = True
        for poller in self._own:
            await poller.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._timers.stop()
        await self._unfinished.stop()
        await self._works.stop(WORK_GRACE)
        await self._doer.stop()
        self._heard.forget()

    def stats(self) -> FlowStats:
        return FlowStats(
            flow=self.flow.name,
            **msgspec.structs.asdict(self._counts),
            failed_works=self._works.failed,
            working=len(self._works),
            timers=len(self._timers),
            polls={name: poller.stats() for name, poller in self.polls.pollers.items()},
        )

    # What happens

    async def handle(self, place: SessionKey, event: FlowEvent, *, awaited_only: bool = False) -> bool:
        """Whether it is this flow's: a session is under way, or begins, or its button was pressed.

        When it returns, it is written and done, but for work, which goes on. What was handled before changes
        nothing. `awaited_only`: what the state has no way for is not answered, and is not this flow's.
        Raises FlowError if the flow's own parts fail; the session stays as it was.
        """
        return await self._handling.handle(place, event, awaited_only=awaited_only)

    async def begin(
        self,
        place: SessionKey,
        data: Mapping[str, Any] | None = None,
        *,
        language: str | None = None,
        event: str | None = None,
    ) -> None:
        """Anew, whatever was. `event`: its id, if it may be said again and is to count once."""
        begin = Begin(dict(data or {}), language=language, **self._cause(event))
        await self._handling.handle(place, begin, once=event is not None)

    async def signal(
        self, place: SessionKey, name: str, value: object = None, *, event: str | None = None
    ) -> bool:
        """Whether there is a session that heard it, or there was."""
        signal = Signal(name, value, **self._cause(event))
        return await self._handling.handle(place, signal, once=event is not None)

    def _cause(self, event: str | None) -> dict[str, Any]:
        return {"id": f"a{event or secrets.token_hex(8)}", "at": self.clock.now()}

    async def apologise(
        self, place: SessionKey, event: FlowEvent, text: str, query: str | None = None
    ) -> None:
        """For an event that the flow could not handle; `query`: of a press."""
        said = self.flow.text(text, event.language)
        if query is not None:
            self._doer.answer(place.bot, query, said)
        else:
            await self._doer.say(place, said, f"{event.id}:sorry")

    async def put_into(self, place: SessionKey, state: str, data: dict[str, Any]) -> bool:
        """Without a word, for who has no session; what the state needs is begun. False: he has one. If that
        waits for the same, it waits on, also where the store had lost it.
        """
        handling, wanted = self._handling, self._in_state(state, data)
        async with handling.turns.hold(place.key):
            session = await handling.finish(place, await handling.sessions.get(place))
            if session is None:
                await handling.begin_with(place, wanted)
                return True
            held = session.held
            if held is not None and held == wanted.held:
                await self.polls.subscribe(held.poll, held.key, place, session.data.get("username"))
            return False

    def _in_state(self, state: str, data: dict[str, Any]) -> Session:
        now, declared, lifetime = self.clock.now(), self.flow.by_name[state], self.flow.lifetime
        session = Session(
            flow=self.flow.name,
            state=state,
            visit=int(now * 1_000) + 1,
            tag=secrets.token_hex(5),
            data=data,
            entered_at=now,
            expires_at=None if lifetime is None else now + lifetime,
            due=None if declared.timeout is None else now + declared.timeout.seconds,
            timed=declared.timeout is not None,
        )
        session = msgspec.structs.replace(session, held=subscription(self.flow, session))
        effects = upkeep(self.flow, session)
        pending = tuple(PendingEffect("restored", place, effect) for place, effect in enumerate(effects))
        return msgspec.structs.replace(session, pending=pending)

    # What comes by itself

    async def _look(self, place: SessionKey) -> None:
        """One whose state is no more is told so when he comes back, not now."""
        session = await self._handling.sessions.get(place)
        if session is not None and session.state in self.flow.by_name:
            await self._handling.handle(place, Expired(**self._cause(None)))

    async def _resume(self, key: str) -> None:
        await self._handling.resume(key)

    def _teller_of(self, poll: str) -> Notify:
        async def tell(subscription: Subscription, news: News) -> None:
            if self._is_over:
                raise ClosedError(f"flow {self.flow.name} has stopped")
            await self._started.wait()  # the poller may have started a moment before
            # Of a cause that is the same when it is told again, and no other time.
            cause = effect_key(("flow", poll)) or f"{poll}:{news.key}:{subscription.since:.3f}:{news.kind}"
            short = hashlib.blake2b(cause.encode(), digest_size=8).hexdigest()
            event = Polled(poll, news.key, news.kind, news.value, id=f"p{short}", at=self.clock.now())
            await self.handle(session_key_in(subscription), event)

        return tell

    async def _ring(self, key: str, visit: int, at: float) -> None:
        place = parse_session_key(key)
        try:
            await self.handle(place, TimedOut(visit, id=f"t{visit}:{at:.3f}", at=self.clock.now()))
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            await self._wait_for_the_end(place, at)

    async def _wait_for_the_end(self, place: SessionKey, at: float) -> None:
        """Its timeout leads nowhere; the end of its lifetime still comes."""
        async with self._handling.turns.hold(place.key):
            session = await self._handling.sessions.get(place)
            if session is None or session.expires_at is None or session.expires_at <= at:
                await self._timers.clear(place.key)
            else:
                await self._timers.set(place.key, session.expires_at, session.visit)
