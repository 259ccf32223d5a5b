"""The contract's state machine; between any two of its steps the process may end and another begin."""

from hypothesis import settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from contract.machine import LEASE, RULES, OutboxMachine
from contract.post import Post
from contract.stores import OnlySender, sqlite
from restarts import kill
from shrinking import ROOM_TO_SHRINK
from tidegate.model import State


class RestartMachine(OutboxMachine):
    """After each restart everything is where the model has it, but for what only the process knew."""

    store = staticmethod(sqlite)

    def __init__(self) -> None:
        super().__init__()
        self.first = self.outbox  # its folder is removed with it

    @rule()
    def crash(self) -> None:
        """Kill -9. What was on its way arrives in that instant."""
        self.step()
        for ticket in list(self.late):
            self.counted(self.held[ticket])
        for lane in [lane for lane, held in self.model.in_flight.items() if held in self.turns]:
            self.arrives(*lane, 1)
        self.run(self.clock.sleep(0))  # what is waiting to be written is written
        assert isinstance(self.outbox, OnlySender)
        self.run(kill(self.outbox))
        self.begin_again()

    @precondition(lambda self: not self.held and not self.turns)
    @rule()
    def end_well(self) -> None:
        self.step()
        self.run(self.outbox.close())
        self.begin_again()

    def begin_again(self) -> None:
        assert isinstance(self.outbox, OnlySender)
        self.forget_what_only_the_process_knew()
        path = self.outbox.file.path
        outbox = OnlySender(path, self.clock, RULES, lease=LEASE, keep=1e7, poll=3600.0)
        ids, self.outbox = self.post._ids, outbox  # noqa: SLF001  (one file, one line of ids)
        self.run(outbox.open())
        self.post = Post(outbox, self.clock)
        self.post._ids = ids  # noqa: SLF001
        self.look()

    def forget_what_only_the_process_knew(self) -> None:
        now = self.clock.now()
        for one in self.model.messages.values():
            if one.state == State.SENDING:
                self.model._crash(one, now)  # noqa: SLF001  (its lease is over)
        for line in self.model.lines.values():
            line.sort(key=lambda one: one.number)
        self.model.in_flight = {}
        self.model.refusals = []
        self.model.counts["uncertain"] = 0
        self.held, self.late, self.stale, self.turns = {}, set(), [], []


@ROOM_TO_SHRINK
def test_a_process_may_end_between_any_two_steps() -> None:
    some = settings(stateful_step_count=40, max_examples=settings().max_examples // 3)
    run_state_machine_as_test(RestartMachine, settings=some)
