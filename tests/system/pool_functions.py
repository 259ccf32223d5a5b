"""Jobs for a pool of processes, in a module that these import."""

import os
import subprocess
import sys
from pathlib import Path

from tidegate import File, Tidegate

gate = Tidegate("memory://")


@gate.job
def pid(after: str = "") -> int:
    """Return its process, once the file `after` is there."""
    while after and not Path(after).exists():
        os.sched_yield()
    return os.getpid()


@gate.job
def echo(*values: object, **named: object) -> list[object]:
    print("what a job prints goes to the log")  # noqa: T201
    return [*values, named]


@gate.job
def runs_a_program_that_reads_its_input() -> int:
    """As ffmpeg does, which takes what is typed as commands."""
    program = "import sys; print(len(sys.stdin.read()))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)  # noqa: S603
    return int(found.stdout)


@gate.job
def leaves(code: int) -> None:
    os._exit(code)


@gate.job
def exits() -> None:
    sys.exit("enough")


@gate.job
def broken(text: str) -> None:
    raise ValueError(text)


@gate.job
def returns_a_set() -> object:
    return {1}


@gate.job(timeout=0.5)
def endless() -> None:
    while True:
        pass


@gate.job
def document() -> dict[str, object]:
    return {"method": "sendDocument", "document": File(content=b"%PDF" * 500_000, name="a.pdf")}
