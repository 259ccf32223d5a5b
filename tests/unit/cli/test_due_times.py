"""`queue list` shows when a message is due, and `worker --drain` what it waits for."""

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.cli.messages import due_times, record_table
from tidegate.cli.worker import WorkerRun, waits_line
from tidegate.model import Refused, Retry, Settlement
from tidegate.ops.reports import WAITING
from tidegate.sim.virtual_time import VirtualClock


async def test_a_message_that_waits_for_its_time_or_its_next_try_is_listed_with_when(
    clock: VirtualClock,
) -> None:
    gate = Tidegate("memory://", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        later = await gate.send(chat_id=7, text="later", not_before=clock.now() + 60)
        again = await gate.send(chat_id=8, text="again")
        plain = await gate.send(chat_id=8, text="plain")
        [claim] = await gate.outbox.claim(1)
        await gate.outbox.settle([Settlement(claim, Retry(20, "502"))])
        records, now = await gate.outbox.records(states=WAITING), clock.now()
        due = await due_times(gate.outbox, records, now)

    assert {ticket: round(at - now) for ticket, at in due.items()} == {later.id: 60, again.id: 20}
    assert plain.id not in due
    columns = [column.header for column in record_table(records, now, due).columns]
    assert columns == ["id", "state", "chat", "when", "due", "what"]


async def test_drain_said_nothing_of_what_it_waits_for(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        for chat in (1, 2):
            await gate.send(chat_id=chat, text="later", not_before=clock.now() + 60)
        await gate.send(chat_id=3, text="refused")
        [claim] = await gate.outbox.claim(1)
        await gate.outbox.settle([Settlement(claim, Refused(12))])
        run = WorkerRun(gate, clock)
        await run.start()
        line = await waits_line(run)

    assert line.startswith("3 wait: 2 until ")
    assert "(not_before)" in line
    assert "1 a 429 has closed its chat for 12 s" in line
