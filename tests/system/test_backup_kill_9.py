"""A backup that is killed leaves no target, or a whole one; the next run removes its draft."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
from tidegate.model import BotId, Message, TicketId
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite.backups import back_up
from tidegate.stores.sqlite.outbox import SqliteOutbox

# Runs `tidegate backup`, and stops for ever when it comes to the named function.
STOPS_THERE = """
import signal, sys
from tidegate.stores.sqlite import backups
from tidegate.cli import main

def stop(*_):
    print("there", flush=True)
    while True:
        signal.pause()

setattr(backups, sys.argv.pop(1), stop)
main()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "tidegate.db"

    async def fill(clock: VirtualClock) -> None:
        outbox = SqliteOutbox(path, clock)
        await outbox.open()
        messages = [
            Message(
                id=TicketId(str(n)),
                bot=BotId(42),
                method="sendMessage",
                chat_id=n,
                params={"text": "x" * 1_000},
            )
            for n in range(1, 500)
        ]
        await outbox.put(messages)
        await outbox.close()

    run(fill)
    return path


def kill_backup_at(step: str, store: Path, target: Path) -> None:
    command = [sys.executable, "-c", STOPS_THERE, step, "backup", str(target), "--store", str(store)]
    with fork_server.popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        os.kill(process.pid, signal.SIGKILL)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith("tidegate.db")}


@pytest.mark.parametrize("step", ["_copy", "_check_whole", "_sync", "_move_to_new_name"])
def test_a_killed_backup_leaves_no_empty_target_and_its_draft_goes_with_the_next_run(
    store: Path, tmp_path: Path, step: str
) -> None:
    kill_backup_at(step, store, tmp_path / "monday.db")

    assert "monday.db" not in names(tmp_path)
    back_up(store, tmp_path / "tuesday.db")

    assert names(tmp_path) == {"tuesday.db"}


def test_a_backup_killed_at_its_last_step_is_whole(store: Path, tmp_path: Path) -> None:
    kill_backup_at("_remove_draft", store, tmp_path / "monday.db")
    back_up(store, tmp_path / "tuesday.db")

    assert names(tmp_path) == {"monday.db", "tuesday.db"}
    assert (tmp_path / "monday.db").read_bytes() == (tmp_path / "tuesday.db").read_bytes()
