"""One round of one subject, for `redis_store.py`: a Redis of its own, a producer, then a worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import redis
from benchmarks.redis_peers import HERE, Peer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers import redis_server

Figures = dict[str, float]
ACKNOWLEDGED: Final = 5.0  # seconds for the last acknowledgements to arrive
ALONE: Final = HERE / "redis_alone.py"


@contextmanager
def private_redis() -> Iterator[tuple[str, redis.Redis]]:
    """Empty, with the durability that Tidegate's users are told to choose: for everybody alike."""
    with redis_server(appendonly=True) as server, redis.Redis.from_url(server.url) as client:
        client.config_set("appendfsync", "everysec")
        yield server.url, client


def version_of(client: redis.Redis) -> tuple[int, ...]:
    return tuple(map(int, client.info("server")["redis_version"].split(".")))


def measure(peer: Peer, number: int) -> Figures:
    """Messages a second: put, worked off, and moved, which is one after the other."""
    with private_redis() as (url, client):
        command = [str(peer.python(version_of(client))), str(HERE / peer.script)]
        put = run([*command, "put", url, str(number), peer.option])
        worked = work([*command, "work", url, str(int(put["count"])), peer.option], peer, client)
        moved = 1 / (1 / put["per_second"] + 1 / worked["per_second"])
        return {"put": put["per_second"], "work": worked["per_second"], "moved": moved}


def work(command: list[str], peer: Peer, client: redis.Redis) -> Figures:
    with running(command) as process:
        figures = answer(process)
        handled, until = int(figures["count"]), time.monotonic() + ACKNOWLEDGED
        asked = int(command[4])
        while (left := unacknowledged(peer, client)) > asked - handled and time.monotonic() < until:
            time.sleep(0.05)
        assert left <= asked - handled, f"{peer.label}: {left} of {asked} not acknowledged, {handled} handled"
        return figures


def unacknowledged(peer: Peer, client: redis.Redis) -> int:
    found: list[Any] = [client.execute_command(*command) for command in peer.left]  # type: ignore[no-untyped-call]
    return sum(each["pending"] if isinstance(each, dict) else int(each) for each in found)


def run(command: list[str]) -> Figures:
    with running(command) as process:
        return answer(process)


@contextmanager
def running(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """With whatever it starts itself, all killed at the end: what it leaves behind dies with its Redis."""
    process = subprocess.Popen(  # noqa: S603  (scripts beside this one)
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def answer(process: "subprocess.Popen[bytes]") -> Figures:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"{"):
            figures: Figures = json.loads(line)
            return figures
    _, errors = process.communicate()
    sys.exit(f"{process.args!r} gave no answer:\n{errors.decode()[-2_000:]}")


def alone(verb: str, *options: str) -> dict[str, Any]:
    """One of the figures of Tidegate alone, from a process of its own."""
    with private_redis() as (url, _):
        return run([sys.executable, str(ALONE), verb, url, *options])
