"""Processes that share PROMETHEUS_MULTIPROC_DIR: whichever is asked answers for all of them, exactly."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metric_samples import Samples

MEMBER = Path(__file__).with_name("metrics_member.py")


class Member:
    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(MEMBER)],
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def ask(self) -> Samples:
        self.tell("ask")
        assert self.process.stdout is not None
        return Samples(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.communicate()  # the end of its input is its end
        assert self.process.returncode == 0


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    made = [Member(tmp_path / "shared") for _ in range(2)]
    yield made
    for member in made:
        member.process.kill()
        member.process.communicate()


def sent(found: Samples) -> tuple[float, float]:
    return found.sum("tidegate_sends_total"), found.sum("tidegate_call_duration_seconds_count")


def test_totals_are_exact_whichever_process_is_asked_also_after_one_has_ended(
    members: list[Member], tmp_path: Path
) -> None:
    first, second = members
    first.tell("5")
    assert sent(first.ask()) == (5, 5)
    second.tell("7")
    assert sent(second.ask()) == sent(first.ask()) == (12, 12)

    second.tell("100")
    while sent(first.ask()) != (112, 112):  # it shares its counts without being asked
        pass
    second.tell("1")
    second.end()

    found = first.ask()
    assert sent(found) == (113, 113)
    assert found("tidegate_call_duration_seconds_sum", family="send") == pytest.approx(113 * 0.03)
    # Facts about the store are those of one process; gauges are of the processes that live.
    assert found("tidegate_queue_messages", state="queued", priority="normal") == 2
    assert found.sum("tidegate_build_info") == found("tidegate_ready") == 1
    alive = {path.stem.rpartition("_")[2] for path in (tmp_path / "shared").glob("gauge_live*.db")}
    assert alive == {str(first.process.pid)}
    pages = int(Path(f"/proc/{first.process.pid}/statm").read_text().split()[1])
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    assert found("process_resident_memory_bytes") == pytest.approx(resident, rel=0.1)
