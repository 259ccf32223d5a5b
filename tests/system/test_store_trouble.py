"""A store that cannot be used, or not for now: said in one line, and nothing is lost."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from system.killing import LIMITS, TOKEN, arrivals, asked, clock, end, in_thread, line_of, running
from system.operators import Desk, run_here
from tidegate import Tidegate, failure
from tidegate.errors import StoreError
from tidegate.model import BotId, Claim, Rate
from tidegate.settings import Settings
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.http import TelegramServer
from tidegate.stores.sqlite.outbox import SqliteOutbox


def no_database(path: Path) -> None:
    path.write_text("chat_id,text\n1,hello\n")


def truncated(path: Path) -> None:
    make_store(path)
    os.truncate(path, path.stat().st_size // 2)


def cut_in_its_last_page(path: Path) -> None:
    make_store(path)
    os.truncate(path, path.stat().st_size - 100)


def of_another_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")


def newer(path: Path) -> None:
    make_store(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def make_store(path: Path) -> None:
    desk = Desk(path.parent, "http://127.0.0.1:9")
    desk.store = path
    desk.begin()
    desk.put(*range(1, 101))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (no_database, "is not a store of Tidegate"),
        (Path.mkdir, "is a folder"),
        (truncated, "is damaged: restore a backup"),
        (cut_in_its_last_page, "is damaged: restore a backup"),
        (of_another_application, "is a database, but not a store of Tidegate"),
        (newer, "is of version 99, made by a newer Tidegate"),
    ],
)
def test_a_command_says_in_one_line_why_a_file_cannot_be_used(
    tmp_path: Path, make: Callable[[Path], None], text: str
) -> None:
    path = tmp_path / "store.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""

    code, _, complaint = Desk(tmp_path, "").quickly("worker", "--drain", "--store", str(path))

    [line] = complaint.splitlines()
    assert (code in {1, 2}, text in line) == (True, True), line
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.fixture
def folder() -> Iterator[Path]:
    """Which everybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def told_to_a_guest(store: Path) -> str:
    async with running("guest", str(store)) as process:
        return await line_of(process)


@pytest.fixture(autouse=True)
def folders_stay_ours(folder: Path) -> Iterator[None]:
    yield
    folder.chmod(0o755)


def belongs_to_us(store: Path, mode: int) -> None:
    """A store that its guest may see, and as much more as `mode` says. It is closed."""
    make_store(store)
    store.chmod(mode)


async def test_a_file_that_is_read_only_is_said_to_be(folder: Path) -> None:
    store = folder / "store.db"
    await in_thread(belongs_to_us, store, 0o444)

    assert await told_to_a_guest(store) == f"{store} is not for this user: let it read and write the file"


async def test_a_folder_that_is_read_only_is_said_to_be_when_a_store_is_to_be_made(folder: Path) -> None:
    store = folder / "store.db"
    await in_thread(folder.chmod, 0o555)

    told = await told_to_a_guest(store)
    assert told.startswith(f"{store} cannot be made: permission denied: give a path")


async def test_a_store_in_a_folder_that_is_read_only_is_said_to_be(folder: Path) -> None:
    store = folder / "store.db"
    await in_thread(belongs_to_us, store, 0o666)
    await in_thread(folder.chmod, 0o555)

    said = await told_to_a_guest(store)

    assert said == f"{store} is read-only: let this user write it and its folder"


async def test_a_sender_delivers_on_a_full_disk_and_writes_it_down_later(tmp_path: Path) -> None:
    store, rate = tmp_path / "store.db", Rate(40, 1)
    async with TelegramServer(limits=Limits(private=rate)) as server:
        async with running("crowded", str(store), server.url, TIDEGATE_CHAT_RATE=str(rate)) as process:
            assert "cannot be read or written: look at the disk" in await line_of(process)
            assert await line_of(process) == "40 delivered"
            assert await line_of(process) == "41 delivered"
            assert await process.wait() == 0

        rows = await asked(store, "SELECT state, count(*) FROM messages GROUP BY state")
        assert rows == [("delivered", 41)]
        async with Tidegate(store) as gate:
            gate.add_bot(TOKEN, api_url=server.url)
            async with gate.worker():
                await gate.drained()
        arrived = arrivals(server.telegram.request_log.log)

    assert arrived[1] == [f"full #{number}" for number in range(40)]
    assert arrived[2] == ["room again #0"]


def test_a_worker_that_fails_again_and_again_ends_with_1_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: SqliteOutbox, room: int) -> list[Claim]:  # noqa: ARG001
        raise ValueError("nobody expects this")

    monkeypatch.setattr(SqliteOutbox, "claim", failing)
    monkeypatch.setattr(failure, "FIRST_PAUSE", 0.001)  # seconds
    desk = Desk(tmp_path, "http://127.0.0.1:9")
    desk.begin()
    desk.put(1)

    code, _, complaint = run_here("worker", folder=tmp_path)

    assert code == 1
    assert "nobody expects this" in json.loads(complaint.splitlines()[0])["message"]  # the log
    said = "the worker gives up: the worker's loop that claims has failed 6 times in a row: ValueError"
    assert said in complaint.splitlines()[-1]
    assert desk.told("queue", "stats")["total_queued"] == 1


HOLD_LOCK = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


async def test_a_file_kept_locked_fails_a_send_soon_while_delivery_goes_on_and_health_says_so(
    tmp_path: Path,
) -> None:
    store, holder = tmp_path / "store.db", tmp_path / "holder.py"
    await in_thread(holder.write_text, HOLD_LOCK)
    rate = Rate(40, 1)
    settings = Settings(tidegate_busy_timeout=0.3, tidegate_chat_rate=rate)
    async with (
        TelegramServer(limits=Limits(private=rate)) as server,
        Tidegate(store, settings=settings) as gate,
        gate.worker(),
    ):
        gate.add_bot(TOKEN, api_url=server.url)
        await gate.outbox.pause(BotId(42))
        await gate.send_many([{"chat_id": 1, "text": f"locked #{number}"} for number in range(20)])
        await gate.outbox.resume(BotId(42))
        async with running(str(store), script=str(holder)) as process, clock.timeout(15):
            assert await line_of(process) == "held"
            with pytest.raises(StoreError, match="another process has kept"):
                await gate.send(chat_id=2, text="not now")
            await gate.drained()
            health = gate.health()
            await end(process)
            while not gate.health().ready:
                await clock.sleep(0.05)
            await gate.send(chat_id=2, text="now #0")
            await gate.drained()
        arrived = arrivals(server.telegram.request_log.log)

    assert not health.ready
    assert "another process has kept" in health.reasons[0]
    assert arrived == {1: [f"locked #{number}" for number in range(20)], 2: ["now #0"]}


async def test_a_lock_file_that_is_removed_admits_no_second_sender_and_draws_no_429(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with TelegramServer(limits=LIMITS) as server:
        async with Tidegate(store) as gate:
            gate.add_bot(TOKEN)
            await gate.send_many({"chat_id": 1 + i % 30, "text": f"x #{i}"} for i in range(600))
        async with running("sender", str(store), server.url, "1") as first:
            assert await line_of(first) == "sending"
            for _ in range(2):
                await in_thread(store.with_name("store.db.lock").unlink)
                await clock.sleep(0.2)
                async with running("sender", str(store), server.url, "2") as second:
                    assert (await line_of(second), await second.wait()) == ("", 1)
            assert await line_of(first) == "drained"
            assert await first.wait() == 0
        log = server.telegram.request_log.log

    assert [entry for entry in log if entry.status == 429] == []
    arrived = sorted(text for texts in arrivals(log).values() for text in texts)
    assert arrived == sorted(f"x #{i}" for i in range(600))


async def test_a_file_deleted_under_a_running_sender_accepts_no_more_and_loses_nothing(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store.db"
    async with TelegramServer() as server:
        async with Tidegate(store) as gate, gate.worker(), clock.timeout(10):
            gate.add_bot(TOKEN, api_url=server.url)
            await gate.send(chat_id=1, text="accepted #0", not_before=clock.now() + 0.5)
            await gate.send(chat_id=2, text="later #0", not_before=clock.now() + 3600)
            await in_thread(store.unlink)
            with pytest.raises(StoreError, match="was deleted or moved while it was open"):
                await gate.send(chat_id=3, text="not accepted #0")
            while (await gate.stats()).delivered < 1:
                await clock.sleep(0.05)
            health = gate.health()
        arrived = arrivals(server.telegram.request_log.log)

    assert (arrived, health.ready) == ({1: ["accepted #0"]}, False)
    saved = await asked(store.with_name("store.db.rescued"), "SELECT state, chat_id FROM messages")
    assert saved == [("delivered", 1), ("queued", 2)]


async def test_stats_and_doctor_say_that_a_file_was_deleted_under_its_sender(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "http://127.0.0.1:9")
    await in_thread(desk.begin)
    async with Tidegate(desk.store) as gate, gate.worker():
        await in_thread(desk.store.unlink)
        stats = await in_thread(desk.run, "queue", "stats")
        doctor = await in_thread(desk.run, "doctor", "--json")

    assert "tidegate.db was deleted or moved while process" in stats.stderr
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert (checks["store"]["state"], len(checks) > 3) == ("failed", True)  # the others are made, too
    assert checks["store"]["found"] in stats.stderr


async def test_health_readyz_queue_stats_and_doctor_say_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, "http://127.0.0.1:9")
    await in_thread(desk.begin)
    async with Tidegate(desk.store) as gate:
        before = await in_thread(desk.run, "queue", "stats", "--json")

        async def failing(room: int) -> list[Claim]:  # noqa: ARG001
            raise ValueError("nobody expects this")

        monkeypatch.setattr(gate.outbox, "claim", failing)
        app = gate.asgi()
        await app.start()
        try:
            while gate.health().ready:
                await clock.sleep(0.01)
            stats = await in_thread(desk.run, "queue", "stats", "--json")
            text = await in_thread(desk.run, "queue", "stats")
            doctor = await in_thread(desk.run, "doctor", "--json")
            readyz = await gate.core.handlers.problems()
        finally:
            await app.stop()

    words = "the worker's loop that claims has failed"
    assert json.loads(before.stdout)["health"] is None
    health = json.loads(stats.stdout)["health"]
    assert (health["ready"], words in health["reasons"][0]) == (False, True)
    assert words in " ".join(text.stdout.split())
    [sender] = [check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "sender"]
    assert (doctor.returncode, sender["state"], words in sender["advice"]) == (1, "failed", True)
    assert words in readyz["gate"]
