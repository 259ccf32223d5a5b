"""The planted bottlenecks of the how-to are found by `tidegate profile`, and by the recipe beside it."""

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fork_server
from system.operators import TIDEGATE, Desk, environment
from system.snippets import HOWTOS, blocks, read
from tidegate.clock import Clock

PAGE = "find-the-bottleneck.md"
PATIENCE = 60
SAVED = {"slow_shop.py": "def find_price", "waiting_shop.py": "def ask_the_bank"}

pytestmark = pytest.mark.usefixtures("a_command_may_block")


@pytest.fixture(autouse=True)
def shops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the page, saved as it says."""
    monkeypatch.chdir(tmp_path)
    for name, word in SAVED.items():
        (tmp_path / name).write_text(next(block for block in blocks(PAGE) if word in block))


def command(word: str) -> list[str]:
    """The first command of the page that has this word."""
    lines = (HOWTOS / PAGE).read_text("utf-8").splitlines()
    return shlex.split(next(line for line in lines if word in line and not line.startswith(" ")))


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    ran = fork_server.run(
        [*TIDEGATE, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "may not be watched" in ran.stderr:
        pytest.skip("this machine lets no process watch another (kernel.yama.ptrace_scope)")
    return ran


@pytest.mark.parametrize(
    ("shop", "shown", "bottleneck"),
    [
        ("slow_shop.py", "tidegate profile --for 10 --pid", "find_price"),
        ("waiting_shop.py", "tidegate profile --for 10 --waiting", "ask_the_bank"),
    ],
)
def test_the_bottleneck_is_at_the_top_and_in_the_file(
    shop: str, shown: str, bottleneck: str, tmp_path: Path
) -> None:
    with running(shop) as process:
        arguments = [{"10": "2", "$!": str(process.pid)}.get(word, word) for word in command(shown)[1:]]
        ran = tidegate(*arguments, "--json")

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["functions"][0]["function"] == bottleneck
    assert found["functions"][0]["place"].startswith(f"{shop}:")
    assert found["samples"] > 10
    [file] = tmp_path.glob("profile-*.svg")
    assert found["file"] == file.name
    assert f"{bottleneck} ({shop}:" in file.read_text("utf-8")


def test_the_recipe_with_cprofile_finds_it_too() -> None:
    recipe = command("-m cProfile")
    assert recipe[0] == "python"
    clock = Clock()
    with running(*recipe[1:]) as process:
        begun = clock.monotonic()
        while clock.monotonic() < begun + 2 and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

    printed = io.StringIO()
    report = next(block for block in blocks(PAGE) if "pstats" in block)
    with contextlib.redirect_stdout(printed):
        exec(read(report, PAGE), {})  # noqa: S102  (our own docs)
    first = next(line for line in printed.getvalue().splitlines() if "slow_shop.py" in line)
    assert first.endswith("(find_price)")


def test_the_page_mends_it() -> None:
    mended = next(block for block in blocks(PAGE) if "PRICES.get" in block)
    names: dict[str, object] = {}
    exec(read(mended, PAGE), names)  # noqa: S102  (our own docs)
    assert names["find_price"]("tea number 199999") == 199999 % 90  # type: ignore[operator]


def test_without_a_pid_the_sender_of_the_store_is_watched(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "http://127.0.0.1:1")
    desk.begin()
    with desk.worker() as worker:
        ran = tidegate("profile", "--for", "1", "--waiting", "--output", "worker.svg")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"Recording process {worker.pid} for 1 s")
    assert ran.stdout.endswith("the flame graph is in worker.svg\n")


def test_ctrl_c_ends_it_early_and_writes_what_was_seen(tmp_path: Path) -> None:
    with running("slow_shop.py") as process:
        told = [*TIDEGATE, "profile", "--for", "600", "--pid", str(process.pid), "--json"]
        with fork_server.popen(
            told, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as recorder:
            assert recorder.stderr is not None
            assert "Recording" in recorder.stderr.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                recorder.wait(1.5)
            recorder.send_signal(signal.SIGINT)
            out, err = recorder.communicate(timeout=PATIENCE)

    if "may not be watched" in err:
        pytest.skip("this machine lets no process watch another (kernel.yama.ptrace_scope)")
    assert recorder.returncode == 0
    assert json.loads(out)["seconds"] < 60
    assert json.loads(out)["functions"][0]["function"] == "find_price"
    assert len(list(tmp_path.glob("profile-*.svg"))) == 1


def complaint(*arguments: str, code: int = 2) -> str:
    ran = tidegate("profile", *arguments)
    assert ran.returncode == code, ran.stderr
    *announced, line = ran.stderr.splitlines()
    assert announced == []
    return line.removeprefix("tidegate: ")


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "there.svg").touch()
    own = str(os.getpid())

    assert complaint("--for", "0").startswith("--for: must be at least 1")
    assert complaint("--for", "x").startswith("--for: ")
    assert complaint("--rate", "0").startswith("--rate: must be at least 1")
    assert complaint("--pid", "99999999").startswith("--pid: there is no process 99999999")
    assert complaint("--output", "no/where.svg", "--pid", own).startswith("--output: no/where.svg cannot be")
    assert complaint("--output", "there.svg", "--pid", own).startswith("--output: there.svg exists already")
    assert complaint("--output", "flames.png", "--pid", own).startswith("--output: flames.png is not named")
    assert complaint().startswith("no process delivers for tidegate.db: start it")
    assert complaint("--store", "redis://127.0.0.1:1/0").startswith("any number of processes may deliver")
    assert not list(tmp_path.glob("profile-*.svg"))


def test_a_process_that_is_not_python_is_refused() -> None:
    with subprocess.Popen(["sleep", "30"]) as other:  # noqa: S607
        try:
            line = complaint("--pid", str(other.pid))
        finally:
            other.kill()
    assert line.startswith(f"--pid: process {other.pid} is not a Python program")
