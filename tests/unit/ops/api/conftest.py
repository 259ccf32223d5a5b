"""An API in virtual time: a gate in memory with two bots, and a token for each role."""

from collections.abc import AsyncIterator

import pytest

from memory_access import MemoryAccess
from memory_answers import MemoryAnswers
from memory_audiences import MemoryAudiences
from memory_history import MemoryHistory
from memory_jobs import MemoryJobs
from memory_pending_actions import MemoryPendingActions
from tidegate import Tidegate
from tidegate.broadcast.stored_audience import StoredAudiences
from tidegate.history import History
from tidegate.jobs.jobs import Jobs
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import make_api
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.jobs.office_jobs import ScriptedExecutor
from unit.ops.api.service import BOT, OTHER_BOT, Service


@pytest.fixture
async def service(clock: VirtualClock, telegram: SimulatedTelegram) -> AsyncIterator[Service]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    for bot in (BOT, OTHER_BOT):
        gate.add_bot(f"{bot}:token")

    async def exist() -> bool:
        return True

    jobs = MemoryJobs(clock)
    gate.core.jobs = Jobs(gate.core, lambda: jobs, exist, lambda _: ScriptedExecutor(clock))
    audiences = MemoryAudiences(clock)
    gate.core.audiences = StoredAudiences(lambda: audiences, exist, clock)
    gate.core.history = History(gate.core, MemoryHistory, exist)
    store = MemoryAccess(clock)
    access, answers = AccessControl(lambda: store, clock), MemoryAnswers()
    pending = MemoryPendingActions()
    app = make_api(gate, access, answers=answers, pending=pending)
    await app.start()
    try:
        yield await Service.of(app, gate, access, answers, store, pending)
    finally:
        await app.stop()
