"""What a store has accepted survives a loss of power: every connection that says so waits for the disk."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from restarts import Disk
from spools import Machine, message
from tidegate.sim.virtual_time import VirtualClock

FULL = 2  # as SQLite numbers it


class Levels:
    """The level of synchronous writing of each connection, as it was when that was closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_close: dict[str, list[int]] = {}
        levels, connect = self.at_close, sqlite3.connect

        class Watched(sqlite3.Connection):
            def close(self) -> None:
                [[_, _, path]] = self.execute("PRAGMA database_list")
                [[level]] = self.execute("PRAGMA synchronous")
                levels.setdefault(Path(path).name, []).append(level)
                super().close()

        def connect_to_a_hasty_build(*args: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
            connection: sqlite3.Connection = connect(*args, **{**options, "factory": Watched})
            connection.execute("PRAGMA synchronous = NORMAL")  # the default of some builds with a WAL
            return connection

        monkeypatch.setattr(sqlite3, "connect", connect_to_a_hasty_build)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Levels:
    return Levels(monkeypatch)


async def test_the_store_waits_for_the_disk_in_every_process_that_has_it_open(
    tmp_path: Path, clock: VirtualClock, levels: Levels
) -> None:
    disk = Disk(tmp_path / "store.db", clock)
    sender, other = await disk.sender(), await disk.opener()
    for post in (sender, other):
        await post.put()
        await disk.close(post)

    assert levels.at_close == {"store.db": [FULL, FULL]}


async def test_the_spool_waits_for_the_disk_also_in_the_file_of_a_process_that_ended(
    tmp_path: Path, clock: VirtualClock, levels: Levels
) -> None:
    machine = Machine(tmp_path, clock)
    first = await machine.process()
    await first.add([message()])
    await machine.kill(first)
    second = await machine.process()
    await second.add([message()])
    await machine.kill(second)

    assert list(levels.at_close.values()) == [[FULL, FULL]]  # one file: the second has adopted it
