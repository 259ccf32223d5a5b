"""Jobs of the tests, in a module that other processes import: its gate is that of the environment.

Each run of a job writes a line into the folder JOB_LOGS: its name, its number and its process.
"""

import os
import time
from pathlib import Path

from tidegate import File, Tidegate

gate = Tidegate()
LOGS = Path(os.environ.get("JOB_LOGS", "."))


def note(what: str, number: int) -> None:
    with (LOGS / "runs").open("a") as log:  # lines are short: each is written in one step
        log.write(f"{what} {number} {os.getpid()}\n")


@gate.job(retries=0, timeout=60)
def nap(number: int, seconds: float) -> str:
    note("nap", number)
    time.sleep(seconds)  # noqa: TID251  (work that takes real time)
    note("woke", number)
    return f"nap {number} is over"


@gate.job(retries=2, pause=0.1, failed_text="it did not work")
def broken(number: int) -> None:
    note("broken", number)
    raise ValueError(f"broken {number}")


@gate.job(retries=0, timeout=1)
def endless(number: int) -> None:
    note("endless", number)
    while True:
        time.sleep(0.1)  # noqa: TID251  (likewise)


@gate.job
async def document(number: int) -> dict[str, object]:
    return {"method": "sendDocument", "document": File(content=b"%PDF-", name=f"{number}.pdf")}
