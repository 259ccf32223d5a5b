"""`tidegate profile`: watch a running process, draw a flame graph, and name its slowest functions."""

import asyncio
import os
import shutil
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.flame_graph import ProfiledFunction, read_flame_graph
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, Store
from tidegate.cli.progress import phase
from tidegate.cli.store import file_of, is_redis, public_store_name, store_name
from tidegate.cli.svg import reserve
from tidegate.clock import Clock
from tidegate.errors import BadInputError, MissingExtraError, TidegateError

app = typer.Typer(add_completion=False)

SHOWN: Final = 10  # functions
OVERDUE: Final = 60.0  # seconds that py-spy may take longer than it was told: large programs are slow to read
HOW_TO_FIND: Final = "pgrep -fa python lists the processes of this machine"
Seconds = Annotated[
    int, typer.Option("--for", min=1, max=3600, metavar="SECONDS", help="Watch for this long.")
]
Pid = Annotated[
    int | None,
    typer.Option(
        "--pid", min=1, metavar="N", help="The process; default: the one that delivers for the store."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="The flame graph: a new file; default: profile-….svg.",
    ),
]
SamplingRate = Annotated[int, typer.Option("--rate", min=1, max=1000, metavar="N", help="Samples a second.")]
Waiting = Annotated[
    bool,
    typer.Option("--waiting", help="Count waits, too: blocking calls, and an idle event loop."),
]


@app.command(epilog="[b]Try it:[/b]  tidegate profile --for 10  ·  tidegate profile --for 10 --pid 4711")
def profile(
    *,
    seconds: Seconds = 30,
    pid: Pid = None,
    output: Output = None,
    rate: SamplingRate = 100,
    waiting: Waiting = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Watch a running Python process and write a flame graph of its time.

    The process goes on meanwhile, and needs no change. Without --pid it is the one that delivers for the
    store, if that is a file. Ctrl-C ends it early, and writes what was seen. Open the file in a browser.
    Needs the extra profile.
    """
    program, clock = find_py_spy(), Clock()
    target = checked_output(output or Path(default_name(clock.now())))
    pid = sender_of(store) if pid is None else checked_pid(pid)
    recording = Recording(program, pid, seconds, rate, target, waiting=waiting)
    elapsed = loop.run(record(recording, clock, as_json=as_json))
    profiled = read_flame_graph(target.read_text("utf-8", "replace"))
    found: dict[str, Any] = {
        "pid": pid,
        "seconds": round(elapsed, 1),
        "rate": rate,
        "samples": profiled.samples,
        "file": str(target),
        "functions": [one._asdict() for one in profiled.functions[:SHOWN]],
    }
    told = f"{amount(profiled.samples, 'sample')} of process {pid}; the flame graph is in {target}"
    terminal.report(found, functions_table(profiled.functions[:SHOWN]), told, as_json=as_json)


class Recording(NamedTuple):
    program: str  # py-spy
    pid: int
    seconds: int
    rate: int
    target: Path
    waiting: bool

    def command(self) -> list[str]:
        told = {"--pid": self.pid, "--duration": self.seconds, "--rate": self.rate, "--output": self.target}
        options = [text for option, value in told.items() for text in (option, str(value))]
        return [self.program, "record", "--format", "flamegraph", *options, *["--idle"][: self.waiting]]


def find_py_spy() -> str:
    """Return the program that reads other processes. It comes with its package, beside this Python."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if found is None:
        raise MissingExtraError('py-spy is not installed: pip install "tidegate[profile]"', name="py-spy")
    return found


def default_name(now: float) -> str:
    return f"profile-{datetime.fromtimestamp(now, UTC).astimezone():%Y%m%d-%H%M%S}.svg"


def checked_output(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise BadInputError(f"--output: {path} exists already: give another name, or remove it")
    reserve(path, "--output")
    return path


def checked_pid(pid: int) -> int:
    try:
        os.kill(pid, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        raise BadInputError(f"--pid: there is no process {pid}: {HOW_TO_FIND}") from None
    except PermissionError:  # of another user: py-spy says what it needs
        pass
    return pid


def sender_of(store: str | None) -> int:
    """Return the process that delivers for a store in a file. Raises BadInputError if none does."""
    if is_redis(store_name(store)):
        raise BadInputError(
            f"any number of processes may deliver for a store in Redis: name one with --pid; {HOW_TO_FIND}"
        )
    from tidegate.stores.sqlite.sender_lock import SenderLock  # noqa: PLC0415  (help does without)

    file = file_of(store)
    sender = loop.run(SenderLock(file).holder())
    if sender is None or not sender.pid:
        raise BadInputError(
            f"no process delivers for {public_store_name(str(file))}: start it, name its store with --store,"
            f" or any process with --pid; {HOW_TO_FIND}"
        )
    return sender.pid


async def record(recording: Recording, clock: Clock, *, as_json: bool) -> float:
    """Run py-spy until it has written its file; return the seconds that it took.

    Raises TidegateError that says why it could not.
    """
    stop = loop.stop_signal()
    title = f"Recording process {recording.pid}"
    terminal.announce(f"{title} for {recording.seconds} s (Ctrl-C ends it early)", as_json=as_json)
    process = await asyncio.create_subprocess_exec(
        *recording.command(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches it through this process, once
    )
    begun = clock.monotonic()
    ended = asyncio.create_task(process.communicate())
    try:
        with phase(clock, title, recording.seconds, as_json=as_json) as show:
            while not ended.done() and not stop.is_set() and clock.monotonic() < begun + _limit(recording):
                elapsed = min(recording.seconds, int(clock.monotonic() - begun))
                show(elapsed, f"{elapsed} of {recording.seconds} s")
                await asyncio.wait([ended], timeout=loop.FRAME)
        if not ended.done():
            process.send_signal(signal.SIGINT)  # it writes what it has
            await asyncio.wait([ended], timeout=OVERDUE)
    finally:
        if not ended.done():
            process.kill()
    _, errors = await ended
    if process.returncode != 0 or not recording.target.exists():
        raise failure(recording.pid, errors.decode(errors="replace"))
    return min(float(recording.seconds), clock.monotonic() - begun)


def _limit(recording: Recording) -> float:
    return recording.seconds + OVERDUE


def failure(pid: int, text: str) -> TidegateError:
    """Return the error for what py-spy has said."""
    if "ermission" in text or "not permitted" in text:
        return TidegateError(
            f"process {pid} may not be watched: run this command with sudo, or as the user of that process"
            " and with sysctl kernel.yama.ptrace_scope=0; a container needs --cap-add SYS_PTRACE"
        )
    if "No such file or directory" in text or "process is running" in text or "os error 3" in text:
        return BadInputError(f"--pid: process {pid} has ended: {HOW_TO_FIND}")
    if "python version" in text or "ython interpreter" in text or "libpython" in text:
        return BadInputError(f"--pid: process {pid} is not a Python program that py-spy knows: {HOW_TO_FIND}")
    if "No stack counts" in text:
        return TidegateError(f"process {pid} did nothing in this time: --waiting counts waits, too")
    first = next((line for line in text.splitlines() if line.startswith("Error")), "it gave no reason")
    return TidegateError(f"process {pid} could not be recorded; py-spy says: {first}")


def functions_table(functions: list[ProfiledFunction]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("own", "total"):
        table.add_column(title, justify="right")
    table.add_column("function")
    table.add_column("place", overflow="fold")
    for one in functions:
        shares = (f"{one.own:.0%}", f"{one.total:.0%}")
        table.add_row(*shares, Text(terminal.printable(one.function)), Text(terminal.printable(one.place)))
    return table
