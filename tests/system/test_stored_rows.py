"""A broadcast whose rows are in the real database: its process is killed, a chat is forgotten."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from system import killing
from system.operators import PATIENCE, Desk, telegram
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.outbox.campaigns import GONE_AFTER
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire

ROWS = 600  # more than the rows of one page
FAST = Rate(1_000, 1)


class LateClock(Clock):
    """That of a process which looks when the other one has been silent for long enough."""

    def now(self) -> float:
        return super().now() + GONE_AFTER + 1


async def test_what_was_accepted_reaches_everybody_once_after_kill_9(tmp_path: Path) -> None:
    store, clock = tmp_path / "tidegate.db", LateClock()
    async with killing.running("broadcaster", str(store), str(ROWS)) as process:
        assert await killing.line_of(process) == "accepted"
        await killing.kill(process)
    assert await killing.asked(
        tmp_path / "tidegate-data.db", "SELECT count(*) FROM tidegate_audience_rows"
    ) == [(ROWS,)]

    server = SimulatedTelegram(clock, limits=Limits(bot=FAST))
    gate = Tidegate(store, clock=clock, rules=Rules(bot=FAST), wire=TelegramWire(server, clock))
    gate.add_bot(killing.TOKEN)
    async with gate, gate.worker(), clock.timeout(30):
        assert [one.state for one in await gate.campaigns(resume=True)] == ["running"]
        while (record := await gate.campaign("sale")).state == "running":
            await clock.sleep(0.05)
        while await (await gate.core.audiences.opened()).all():
            await clock.sleep(0.05)

    assert (record.state, record.counts["delivered"], record.total) == ("finished", ROWS, ROWS)
    found = Counter(entry.chat_id for entry in server.request_log.log if entry.status == 200)
    assert found == Counter(range(1001, 1001 + ROWS))
    assert server.report()["refused"] == 0


def stopped(desk: Desk, rows: int) -> None:
    """A process has accepted a broadcast, and has ended."""

    async def start(gate: Tidegate) -> None:
        people = [{"chat_id": 1001 + n, "name": f"person-{n}"} for n in range(rows)]
        await gate.start_broadcast("sale", people, "Hello {name}!", ahead=5)

    desk.begin()
    desk.within(start)


def test_a_worker_goes_on_with_what_another_process_has_left(tmp_path: Path) -> None:
    with telegram() as url:
        desk, clock = Desk(tmp_path, url), Clock()
        stopped(desk, 20)
        assert desk.told("broadcast", "show", "sale")["state"] == "stopped"
        assert "goes on with tidegate worker" in desk.quickly("broadcast", "resume", "sale")[1]

        until = clock.monotonic() + PATIENCE
        with desk.worker():
            while not desk.arrived(1020) and clock.monotonic() < until:
                pass
        assert [desk.arrived(chat) for chat in range(1001, 1021)] == [1] * 20


def test_forget_erases_the_rows_of_a_chat_from_the_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "http://127.0.0.1:9")
    stopped(desk, ROWS)
    secret, file = b"person-599", tmp_path / "tidegate-data.db"
    assert any(secret in left.read_bytes() for left in tmp_path.glob("tidegate-data.db*"))

    assert "Erase 0 messages and 1 audience row to 1600 for good" in desk.complains("forget", "1600")
    assert desk.told("forget", "1600", "--bot", "43", "--yes")["audience_rows"] == 0
    code, out, _ = desk.quickly("forget", "1600", "--yes")

    assert code == 0
    assert "Erased 1 audience row of it." in out
    assert [left for left in tmp_path.glob("tidegate*") if secret in left.read_bytes()] == []
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM tidegate_audience_rows").fetchone() == (ROWS - 1,)
