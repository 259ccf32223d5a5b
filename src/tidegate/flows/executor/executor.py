"""Runs one flow: events in, effects out, nothing lost and nothing done twice, whatever crashes in between."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError, ClosedError
from tidegate.failure import describe_error
from tidegate.flows.effects import PendingEffect
from tidegate.flows.events import Begin, Expired, FlowEvent, Polled, Signal, TimedOut
from tidegate.flows.executor.effect_runner import EffectRunner, OnUnknown
from tidegate.flows.executor.event_handler import EventHandler
from tidegate.flows.executor.polls import MakePoller, make_polls, poll_names
from tidegate.flows.executor.recovery import FlowRecovery
from tidegate.flows.executor.stats import FlowCounts, FlowStats
from tidegate.flows.executor.timers import SessionTimers
from tidegate.flows.executor.work import WORK_TRIES, WorkFunction, WorkRunner
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError, Poll
from tidegate.flows.port import FlowGate, FlowSessionStore, SessionKey, session_key_in
from tidegate.flows.session import Session
from tidegate.flows.session_update import subscription, upkeep
from tidegate.outbox.effect_keys import effect_key
from tidegate.polling.poller import Poller
from tidegate.polling.restorer import OnProgress, RestoreResult, StaggeredRestore, SubscriptionSource
from tidegate.polling.subscriptions import News, Notify, Subscription
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.flows")

WORK_GRACE: Final = 5.0  # seconds that work has to end when the executor stops


class FlowRunner:
    """Runs between `start` and `stop`, while the gate is open; pollers run while the gate delivers.

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
        self.flow = flow = flow.flat
        self.clock = clock = gate.clock
        self.polls = make_polls(
            flow,
            gate,
            self._news_callback,
            config=batch_polling,
            in_batches=in_batches,
            given=pollers or {},
            restore=restore,
        )
        self._works = WorkRunner(work or {}, gate, clock, flow=flow.name, tries=tries)
        # Executors may be made in a running event loop, which looking for files would block.
        flow.check(works=self._works.functions.keys(), polls=self.polls.pollers.keys(), files=False)
        for poller in self.polls.pollers.values():
            gate.poll(poller)
        self._counts = FlowCounts()
        self._timers = SessionTimers(flow.name, clock, self._ring)
        self._effects = EffectRunner(flow, gate, self.polls, self._counts, on_unknown=on_unknown)
        gate.on_dead(self._effects.replace_dead)
        self._handler = EventHandler(
            flow,
            effects=self._effects,
            works=self._works,
            counts=self._counts,
            on_timer=self._timers.expect,
            now=clock.now,
        )
        self._recovery = FlowRecovery(
            flow,
            clock,
            self._handler,
            inspect=self._inspect,
            legacy=gate.subscriptions,
            polls=[poller.subscriptions for poller in self.polls.pollers.values()],
        )
        self._started = asyncio.Event()
        self._is_stopped = False
        self._tasks = BackgroundTasks()
        self._own_pollers: list[Poller] = []  # not run by the gate, which delivered before it knew of them

    async def start(self, store: FlowSessionStore) -> None:
        """From here on sessions are kept in that store."""
        if not any(map(self.flow.begins_with, self.flow.commands)):
            log.warning("no command begins flow %s: nobody gets into it but by begin()", self.flow.name)
        self._handler.open(store)
        self._is_stopped = False
        self._started.set()
        self._own_pollers = [poller for poller in self.polls.pollers.values() if not poller.is_running]
        for poller in self._own_pollers:
            await poller.start()
        self._timers.start(store)
        self._tasks.start(self._recovery.run_unfinished(), f"flow {self.flow.name} recovers")
        self._tasks.start(self._recovery.catch_up(), f"flow {self.flow.name} catches up")

    async def stop(self) -> None:
        """Effects that are still pending are done after the next start."""
        if not self._started.is_set():
            return
        self._started.clear()
        self._is_stopped = True
        for poller in self._own_pollers:
            await poller.stop()
        await self._tasks.stop()
        await self._timers.stop()
        await self._works.stop(WORK_GRACE)
        await self._effects.stop()

    def stats(self) -> FlowStats:
        return FlowStats(
            flow=self.flow.name,
            **msgspec.structs.asdict(self._counts),
            failed_works=self._works.failed,
            working=len(self._works),
            timers=len(self._timers),
            unreadable=self._handler.unreadable(),
            polls={name: poller.stats() for name, poller in self.polls.pollers.items()},
        )

    # Events from users and from the application

    async def handle(self, key: SessionKey, event: FlowEvent, *, awaited_only: bool = False) -> bool:
        """Return whether the event is this flow's: a session runs, or begins, or its button was pressed.

        When it returns, the event is stored and its effects are done, but for work, which goes on. An event
        that was handled before changes nothing. `awaited_only`: an event that the state has no transition for
        is not answered, and not this flow's. Raises FlowError if the flow's own parts fail; the session stays
        as it was.
        """
        return await self._handler.handle(key, event, awaited_only=awaited_only)

    async def begin(
        self,
        key: SessionKey,
        data: Mapping[str, Any] | None = None,
        *,
        language: str | None = None,
        event: str | None = None,
    ) -> None:
        """Begin a session anew. `event`: an id for a call that may be repeated and is to count once."""
        begin = Begin(dict(data or {}), language=language, **self._cause(event))
        await self._handler.handle(key, begin, once=event is not None)

    async def signal(
        self, key: SessionKey, name: str, value: object = None, *, event: str | None = None
    ) -> bool:
        """Return whether there is, or was, a session that heard it."""
        signal = Signal(name, value, **self._cause(event))
        return await self._handler.handle(key, signal, once=event is not None)

    def _cause(self, event: str | None) -> dict[str, Any]:
        return {"id": f"a{event or secrets.token_hex(8)}", "at": self.clock.now()}

    async def apologise(self, key: SessionKey, event: FlowEvent, text: str, query: str | None = None) -> None:
        """Answer an event that the flow could not handle. `query`: that of a button press."""
        apology = self.flow.text(text, event.language)
        if query is not None:
            self._effects.answer(key.bot, query, apology)
        else:
            await self._effects.say(key, apology, f"{event.id}:sorry")

    async def put_into(self, key: SessionKey, state: str, data: dict[str, Any]) -> bool:
        """Put a user who has no session into the state, silently, and begin what the state needs.

        False: there is a session. If it waits for the same key, its subscription is renewed, in case that
        it was lost.
        """
        return await self._handler.begin_with(key, self._session_in(state, data))

    def _session_in(self, state: str, data: dict[str, Any]) -> Session:
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

    # Events that come by themselves

    async def _inspect(self, key: SessionKey) -> None:
        """A user whose state was removed is told so at the next message, not now."""
        session = (await self._handler.store.load(key)).session
        if session is not None and session.state in self.flow.by_name:
            await self._handler.handle(key, Expired(**self._cause(None)))

    def _news_callback(self, poll: str) -> Notify:
        async def tell(subscription: Subscription, news: News) -> None:
            if self._is_stopped:
                raise ClosedError(f"flow {self.flow.name} has stopped")
            await self._started.wait()  # the poller may have started a moment before
            # A cause that is the same when the news are repeated, and different for other news.
            cause = effect_key(("flow", poll)) or f"{poll}:{news.key}:{subscription.since:.3f}:{news.kind}"
            short = hashlib.blake2b(cause.encode(), digest_size=8).hexdigest()
            event = Polled(poll, news.key, news.kind, news.value, id=f"p{short}", at=self.clock.now())
            await self.handle(session_key_in(subscription), event)

        return tell

    async def _ring(self, key: SessionKey, session: Session) -> None:
        at = session.timer or 0.0
        event = TimedOut(session.visit, id=f"t{session.visit}:{at:.3f}", at=self.clock.now())
        try:
            await self.handle(key, event)
        except FlowError as error:
            log.error("%s", describe_error(error))  # noqa: TRY400
            await self._handler.give_up_timeout(key, at)


class FlowRestorer:
    """Resumes polling after a restart, `group` users every `every` seconds. `bot`: for users of a source."""

    def __init__(
        self, runner: FlowRunner, bot: int, group: int | None, every: float, on_progress: OnProgress | None
    ) -> None:
        self._runner = runner
        self._bot = bot
        self._group = group
        self._every = every
        self._on_progress = on_progress
        self._staggered = StaggeredRestore(runner.clock, group, every, on_progress)

    async def from_store(self, state: str | None) -> RestoreResult:
        """Restore the stored subscriptions of the state's poll, or of all polls."""
        names = poll_names(self._runner.flow) if state is None else [self._poll_of(state).name]
        found = restored = already = groups = 0
        seconds = 0.0
        for name in names:
            poller = self._runner.polls.pollers[name]
            one = await poller.restore(group=self._group, every=self._every, on_progress=self._on_progress)
            found, restored, already = found + one.found, restored + one.restored, already + one.already
            seconds, groups = seconds + one.seconds, groups + one.groups
        return RestoreResult(found, restored, already, seconds, groups)

    async def from_source(self, state: str | None, source: SubscriptionSource) -> RestoreResult:
        """Restore the users that the source names. One without a session is put into the state, silently."""
        if state is None:
            raise BadInputError("a source names users, not their state: give state=… too")
        clock, poll = self._runner.clock, self._poll_of(state)
        begun, users = clock.monotonic(), await _read_source(source)
        for one in users:
            session_key_in(one, self._bot)  # raises before any is restored
        returned = 0

        async def admit(group: Sequence[Subscription]) -> None:
            nonlocal returned
            for one in group:
                returned += await self._put_into(one, state, poll)

        groups = await self._staggered.run(users, admit, lambda one: one)
        seconds = clock.monotonic() - begun
        return RestoreResult(len(users), returned, len(users) - returned, seconds, groups)

    async def _put_into(self, one: Subscription, state: str, poll: Poll) -> bool:
        key = session_key_in(one, self._bot)
        return await self._runner.put_into(key, state, {**one.data, poll.key: one.key})

    def _poll_of(self, state: str) -> Poll:
        declared = self._runner.flow.by_name.get(state)
        if declared is None or declared.poll is None:
            states = ", ".join(one.name for one in self._runner.flow.states if one.poll is not None)
            raise BadInputError(f"nobody waits for anything in {state}: choose from {states or 'no state'}")
        return declared.poll


async def _read_source(source: SubscriptionSource) -> list[Subscription]:
    """Read a source to its end. Of two subscriptions to a key the later one counts."""
    users: list[Subscription] = []
    if isinstance(source, AsyncIterable):
        users += [one async for one in source]
    else:
        users += source
    for one in users:
        if not isinstance(one, Subscription):
            kind = type(one).__name__
            raise BadInputError(f"a source of subscriptions yields Subscription(key, data), not {kind}")
    return list({one.key: one for one in users}.values())
