"""The watchdog names what blocks the event loop: the line, the handler and the chat, while it blocks."""

import asyncio
import gc
import http.server
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from system.bots import blocking_bots
from system.bots.blocking_bots import aiogram_bot, ptb_bot
from system.bots.scenes import GENEROUS, MANY, Visit
from tidegate import Incident, Settings, Tidegate
from tidegate.clock import Clock
from tidegate.incidents import IncidentLog
from tidegate.ops.loop_watch import LoopWatch
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram.http import TelegramServer

FAST = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
LONG_ENOUGH = 10.0  # seconds that a report may take on a busy machine
TRIES = 8
LOOPS = [("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})]
BotRunner = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture(autouse=True)
def handlers_may_block(no_blocking_calls: BlockBuster) -> None:
    no_blocking_calls.deactivate()


class Heard(list[Incident]):
    """Incidents of a log, as they are reported."""

    def __init__(self, incidents: IncidentLog) -> None:
        super().__init__()
        incidents.subscribe(self.append)

    async def first(self, text: str, within: float = LONG_ENOUGH) -> Incident:
        """Wait for an incident with this text: on a busy machine there may be others."""
        async with Clock().timeout(within):
            while not (found := [one for one in self if text in one.text]):
                await Clock().sleep(0.02)
        return found[0]

    async def of(self, block: Callable[[], Awaitable[object] | None], text: str) -> Incident:
        """Block the loop until an incident says this: a machine that is too busy is blamed itself."""
        for _ in range(TRIES):
            if (waited := block()) is not None:
                await waited
            with suppress(TimeoutError):
                return await self.first(text, within=2.0)
        raise AssertionError(f"{text!r} is not said in {[one.text for one in self]}")


@asynccontextmanager
async def watching(warn_after: float = 0.1) -> AsyncIterator[tuple[Heard, LoopWatch]]:
    incidents = IncidentLog(Clock())
    watch, heard = LoopWatch(incidents, Clock(), warn_after), Heard(incidents)
    watch.start()
    await Clock().sleep(0.3)
    try:
        yield heard, watch
    finally:
        watch.stop()


def line_of(text: str, file: Path = Path(__file__)) -> int:
    return 1 + next(at for at, line in enumerate(file.read_text().splitlines()) if text in line)


@pytest.fixture
def slow_api() -> Iterator[str]:
    """The address of a server that takes its time."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.4)  # noqa: TID251  (in its own thread)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("anyio_backend", LOOPS)
@pytest.mark.parametrize(
    ("bot", "options", "handler"),
    [
        (aiogram_bot, {}, "on_pay"),
        (aiogram_bot, {"updates": "durable"}, "on_pay"),
        (ptb_bot, {}, "pay"),
        (ptb_bot, {"updates": "durable"}, "pay"),
    ],
)
async def test_a_handler_that_blocks_is_named_with_its_line_and_chat(
    bot: BotRunner, options: dict[str, Any], handler: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, file = Tidegate("memory://", rules=FAST), Path(blocking_bots.__file__)
    heard = Heard(gate.core.incidents)
    async with TelegramServer(limits=GENEROUS) as server:
        visit = Visit(server.telegram)
        async with bot(server, gate, **options):
            await visit.ask("hello")
            heard.clear()
            incident = await heard.of(lambda: visit.ask("sleep 0.4"), "time.sleep")

    line = line_of("time.sleep(float(seconds))", file)
    assert incident.place == f"bots/blocking_bots.py:{line}"
    assert (incident.handler, incident.chat) == (handler, visit.customer.id)
    where = f"in bots/blocking_bots.py:{line} time.sleep, handler {handler}, chat {visit.customer.id}"
    assert any(where in record.getMessage() for record in caplog.records)
    assert f"bots/blocking_bots.py:{line} act" in incident.stack
    assert incident.seconds is not None
    assert incident.seconds > 0.3


async def test_a_library_that_waits_for_the_network_is_blamed_on_the_line_that_calls_it(
    slow_api: str,
) -> None:
    gate = Tidegate("memory://", rules=FAST)
    heard = Heard(gate.core.incidents)
    async with TelegramServer(limits=GENEROUS) as server:
        visit = Visit(server.telegram)
        async with aiogram_bot(server, gate):
            await visit.ask("hello")
            heard.clear()
            incident = await heard.of(lambda: visit.ask(f"get {slow_api}"), "urlopen")

    line = line_of("urllib.request.urlopen(url)", Path(blocking_bots.__file__))
    assert f"in bots/blocking_bots.py:{line} urllib.request.urlopen, handler on_pay" in incident.text


async def test_a_slow_handler_that_does_not_block_is_named_with_the_place_where_it_waits() -> None:
    gate = Tidegate("memory://", rules=FAST, settings=Settings(tidegate_slow_handler=0.3))
    heard = Heard(gate.core.incidents)
    async with TelegramServer(limits=GENEROUS) as server:
        visit = Visit(server.telegram)
        async with aiogram_bot(server, gate):
            await visit.ask("wait 0.5")
            incident = await heard.first("slow handler")

    line = line_of("await Clock().sleep(float(", Path(blocking_bots.__file__))
    assert incident.place == f"bots/blocking_bots.py:{line}"
    assert (incident.handler, incident.chat) == ("on_slow", visit.customer.id)


async def test_callbacks_hear_of_incidents_the_synchronous_one_even_while_the_loop_hangs() -> None:
    gate = Tidegate("memory://", rules=FAST)
    heard, told = list[Incident](), asyncio.Event()
    hung = threading.Event()

    @gate.on_incident
    def in_thread(incident: Incident) -> None:
        heard.append(incident)
        hung.set()

    @gate.on_incident
    async def in_loop(incident: Incident) -> None:
        heard.append(incident)
        told.set()

    await gate.start()
    await Clock().sleep(0.3)
    assert hung.wait(LONG_ENOUGH)  # blocks the loop until the callback has heard of it
    async with Clock().timeout(LONG_ENOUGH):
        await told.wait()
    await gate.stop()

    assert len(heard) == 2
    assert "so far, and still in system/test_watchdog.py" in heard[0].text
    assert "hung.wait" in heard[0].text
    assert gate.loop_delay().worst > 1.0


@pytest.mark.parametrize("anyio_backend", LOOPS)
async def test_a_block_of_150_ms_is_told() -> None:
    async with watching() as (heard, watch):
        incident = await heard.of(lambda: time.sleep(0.15), "time.sleep")  # noqa: TID251  (what must not be)

    assert f"system/test_watchdog.py:{line_of('time.sleep(0.15)')} time.sleep" in incident.text
    assert watch.reading().worst >= 0.07


async def test_nothing_is_said_of_a_loop_that_runs() -> None:
    async with watching(warn_after=0.5) as (heard, watch):  # others may use this machine
        for _ in range(100):
            await Clock().sleep(0.005)

    assert heard == []
    assert watch.reading().samples > 3


async def test_computing_is_named_as_well_as_waiting() -> None:
    async with watching() as (heard, _):
        incident = await heard.of(lambda: blocking_bots.act("compute 0.4"), "in bots/blocking_bots.py")

    assert incident.place is not None
    assert incident.place.startswith("bots/blocking_bots.py:")


async def test_a_pause_of_the_garbage_collector_is_named_as_such() -> None:
    trash = [[number] for number in range(3_000_000)]

    def collect() -> None:
        gc.collect()

    try:
        async with watching(warn_after=0.05) as (heard, _):
            incident = await heard.of(collect, "by garbage collection, generation 2")
    finally:
        trash.clear()

    assert incident.place is None


async def test_a_loop_that_hangs_is_reported_while_it_hangs(caplog: pytest.LogCaptureFixture) -> None:
    said = threading.Event()
    async with watching() as (heard, watch):
        watch._incidents.subscribe(lambda _: said.set())  # noqa: SLF001
        with caplog.at_level(logging.WARNING):
            assert said.wait(LONG_ENOUGH)
            await Clock().sleep(1.5)

    assert len(heard) == 1
    assert "so far, and still in system/test_watchdog.py" in heard[0].text
    assert any("the loop runs again, after" in record.getMessage() for record in caplog.records)


async def test_many_short_steps_are_no_fault_of_one_of_them() -> None:
    async def step() -> None:
        blocking_bots.act("compute 0.01")

    async with watching() as (heard, _):
        incident = await heard.of(lambda: asyncio.gather(*(step() for _ in range(60))), "by many short steps")

    assert "most often in bots/blocking_bots.py" in incident.text


async def test_a_process_that_was_suspended_blames_no_line() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WATCHED, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    assert program.stdout is not None
    async with Clock().timeout(60):
        assert await program.stdout.readline() == b"ready\n"
        program.send_signal(signal.SIGSTOP)
        await Clock().sleep(1.0)
        program.send_signal(signal.SIGCONT)
        lines = [(await program.stdout.readline()).decode()]
        while "no CPU" not in lines[-1] and lines[-1]:
            lines.append((await program.stdout.readline()).decode())
    program.kill()
    await program.wait()

    assert "by a machine that gave the process no CPU: it is busy, or was suspended" in lines[-1]
    assert all("in <string>" not in line for line in lines)


WATCHED = """
import asyncio
from tidegate.clock import Clock
from tidegate.incidents import IncidentLog
from tidegate.ops.loop_watch import LoopWatch

async def main():
    incidents = IncidentLog(Clock())
    incidents.subscribe(lambda one: print(one.text, flush=True))
    LoopWatch(incidents, Clock(), 0.1).start()
    await asyncio.sleep(0.3)
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
