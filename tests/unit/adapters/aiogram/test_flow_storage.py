"""Sessions of a flow in an FSM storage that may lose them."""

from aiogram.fsm.storage.memory import MemoryStorage

from tidegate.adapters.aiogram.flow_storage import StorageFlowSessions
from tidegate.flows import FlowBuilder
from tidegate.flows.events import TimedOut
from tidegate.flows.executor.effect_runner import EffectRunner
from tidegate.flows.executor.event_handler import EventHandler
from tidegate.flows.executor.stats import FlowCounts
from tidegate.flows.executor.timers import SessionTimers
from tidegate.flows.executor.work import WorkRunner
from tidegate.flows.port import SessionKey
from tidegate.flows.session import Session
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions

ALICE = SessionKey(42, 1, 1)


async def test_the_timer_of_a_session_that_the_storage_has_lost_rings_once(clock: VirtualClock) -> None:
    storage, rung = MemoryStorage(), list[SessionKey]()
    flow = FlowBuilder("shop")
    flow.state("start", say="Hello").on("text", to="end")
    flow.final("end", say="Bye")
    sessions = StorageFlowSessions(MemoryFlowSessions("shop"), storage, clock)
    written = Session(flow="shop", state="start", visit=1, due=clock.now() - 1, timed=True)
    await sessions.commit(ALICE, written, expected=0)
    for data in storage.storage.values():
        data.data = {}
    handler = EventHandler(
        flow.build(),
        effects=EffectRunner.__new__(EffectRunner),  # nothing is to be done
        works=WorkRunner.__new__(WorkRunner),
        counts=FlowCounts(),
        on_timer=lambda _: None,
        now=clock.now,
    )
    handler.open(sessions)

    async def ring(key: SessionKey, session: Session) -> None:
        rung.append(key)
        await handler.handle(key, TimedOut(session.visit, id=f"timer {len(rung)}", at=clock.now()))

    timers = SessionTimers("shop", clock, ring)
    timers.start(sessions)
    await clock.sleep(60)
    await timers.stop()

    assert rung == [ALICE]
