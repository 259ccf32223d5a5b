"""Processes that share a spool's folder, and end at any step: everything that was added is put, in order."""

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from contract.stores import FAST
from shrinking import ROOM_TO_SHRINK
from spools import Machine, message
from tidegate.model import Message, TicketId
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop
from tidegate.stores.redis import spool_file
from tidegate.stores.redis.spool import Spool

PROCESSES = st.integers(0, 2)


class SpoolMachine(RuleBasedStateMachine):
    """Redis here knows what it took, how often, and whether it said so."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(dir=FAST)
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        clock = VirtualClock(self.runner.get_loop())
        self.machine = Machine(Path(self.temporary.name, "spool"), clock)
        self.processes: list[Spool] = [self.run(self.machine.process()) for _ in range(3)]
        self.added: defaultdict[Spool, list[TicketId]] = defaultdict(list)  # by process, in order
        self.taken: dict[TicketId, int] = {}  # how often, in the order of the first times
        self.doubtful: defaultdict[TicketId, int] = defaultdict(int)  # taken, and the answer was lost
        self.cancelled: set[TicketId] = set()

    def run(self, step: Any) -> Any:  # noqa: ANN401  (a coroutine of any kind)
        return self.runner.run(step)

    @rule(which=PROCESSES, sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def add(self, which: int, sizes: list[int]) -> None:
        self.run(self._add(self.processes[which], sizes))

    async def _add(self, spool: Spool, sizes: list[int]) -> None:
        batches = [[message() for _ in range(size)] for size in sizes]
        await asyncio.gather(*map(spool.add, batches))
        self.added[spool] += [each.id for batch in batches for each in batch]

    @rule(which=PROCESSES, number=st.integers(0, 100))
    def add_again(self, which: int, number: int) -> None:
        """What waits already, by its process."""
        spool = self.processes[which]
        if waiting := [each for each in self.added[spool] if self.run(spool.find(each))]:
            before = len(spool)
            self.run(spool.add([message(id=waiting[number % len(waiting)])]))
            assert len(spool) == before

    @rule(which=PROCESSES, numbers=st.lists(st.integers(0, 100), max_size=3))
    def cancel(self, which: int, numbers: list[int]) -> None:
        spool = self.processes[which]
        if ids := [each for ids in self.added.values() for each in ids]:
            self.cancelled |= self.run(spool.cancel(ids[number % len(ids)] for number in numbers))

    @rule(
        which=PROCESSES,
        chunks=st.one_of(st.none(), st.integers(0, 4)),
        lost=st.booleans(),
        dies=st.booleans(),
        more=st.booleans(),
    )
    def drain(self, which: int, chunks: int | None, *, lost: bool, dies: bool, more: bool) -> None:
        """Redis goes away after so many chunks, before it takes one or before it says so."""
        spool = self.processes[which]
        left = chunks

        async def put(messages: list[Message]) -> None:
            nonlocal left, more
            if more:
                more = False
                await self._add(spool, [2])
            failing = left == 0
            if not failing or lost:
                self.take(messages, doubtful=failing)
            if failing:
                raise ConnectionError
            left = None if left is None else left - 1

        try:
            self.run(spool.drain(put))
            assert len(spool) == 0
        except ConnectionError:
            assert len(spool) > 0
            if dies:
                self.kill(which)

    def take(self, messages: list[Message], *, doubtful: bool) -> None:
        assert 0 < len(messages) <= 3
        for each in messages:
            assert each.id not in self.cancelled
            assert self.taken.get(each.id, 0) == self.doubtful[each.id], "it was taken for certain before"
            self.taken[each.id] = self.taken.get(each.id, 0) + 1
            self.doubtful[each.id] += doubtful

    @rule(which=PROCESSES)
    def kill(self, which: int) -> None:
        self.run(self.machine.kill(self.processes[which]))
        self.processes[which] = self.run(self.machine.process())

    @rule(which=PROCESSES)
    def end_well(self, which: int) -> None:
        spool = self.processes[which]
        self.machine.opened.remove(spool)
        self.run(spool.close())
        self.processes[which] = self.run(self.machine.process())

    def teardown(self) -> None:
        try:
            for spool in self.processes:
                self.run(self.machine.kill(spool))
            self.processes = [self.run(self.machine.process())]
            self.drain(0, None, lost=False, dies=False, more=False)
            self.check()
        finally:
            self.run(self.processes[0].close())
            self.runner.close()
            self.temporary.cleanup()

    def check(self) -> None:
        for ids in self.added.values():
            assert set(ids) <= self.taken.keys() | self.cancelled
            assert [each for each in self.taken if each in set(ids)] == [
                each for each in ids if each in self.taken
            ]
        assert self.run(self.machine.names()) == []


@ROOM_TO_SHRINK
def test_whatever_becomes_of_processes_and_redis_what_was_added_is_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_file, "CHUNK_MESSAGES", 3)
    some = settings(stateful_step_count=30, max_examples=settings().max_examples // 2)
    run_state_machine_as_test(SpoolMachine, settings=some)
