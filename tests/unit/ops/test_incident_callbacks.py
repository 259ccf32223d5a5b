"""`on_incident`: callbacks of both kinds are called apart from each other, and their errors are logged."""

import asyncio
import threading
from typing import Any

import pytest

from tidegate import BadInputError, Incident, Tidegate
from tidegate.sim import VirtualClock

SLOW = Incident(kind="slow_sql", text="slow SQL: 0.3 s: SELECT 1", group="slow_sql")


async def test_an_async_callback_runs_in_the_loop_and_another_one_in_a_thread(clock: VirtualClock) -> None:
    gate, heard = Tidegate("memory://", clock=clock), list[tuple[str, Incident]]()
    done = threading.Event()

    @gate.on_incident
    async def in_loop(incident: Incident) -> None:
        heard.append((threading.current_thread().name, incident))

    @gate.on_incident
    def in_thread(incident: Incident) -> None:
        heard.append((threading.current_thread().name, incident))
        done.set()

    await gate.start()
    gate.core.incidents.note(SLOW)
    await clock.sleep(0)
    await clock.sleep(0)
    assert done.wait(10)
    await gate.stop()

    here = threading.current_thread().name
    assert sorted(heard) == sorted([(here, SLOW), ("tidegate: incidents", SLOW)])


async def test_a_callback_that_fails_is_logged_and_others_are_called(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, heard = Tidegate("memory://", clock=clock), asyncio.Event()

    @gate.on_incident
    async def fails(_: Incident) -> None:
        raise RuntimeError("no")

    @gate.on_incident
    async def hears(_: Incident) -> None:
        heard.set()

    await gate.start()
    gate.core.incidents.note(SLOW)
    await heard.wait()
    await gate.stop()
    assert "the callback fails of an incident has failed" in caplog.text


async def test_an_incident_before_the_start_reaches_no_async_callback(clock: VirtualClock) -> None:
    gate, heard = Tidegate("memory://", clock=clock), list[Incident]()

    @gate.on_incident
    async def hears(incident: Incident) -> None:
        heard.append(incident)

    gate.core.incidents.note(SLOW)
    await clock.sleep(1)
    assert heard == []


@pytest.mark.parametrize("callback", [None, lambda: None, lambda _one, _two: None])
async def test_what_cannot_be_called_with_an_incident_is_refused(callback: Any, clock: VirtualClock) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match=r"def callback\(incident\)"):
        Tidegate("memory://", clock=clock).on_incident(callback)


class Watch:
    def __init__(self) -> None:
        self.steps: list[str] = []

    def start(self) -> None:
        self.steps.append("start")

    def stop(self) -> None:
        self.steps.append("stop")


async def test_a_process_is_watched_once_however_many_workers_deliver(clock: VirtualClock) -> None:
    gate, watch = Tidegate("memory://", clock=clock), Watch()
    gate.core.watchers.append(watch)
    async with gate:
        assert watch.steps == []
        first, second = gate.worker(), gate.worker()
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        assert watch.steps == ["start"]
        await second.__aexit__(None, None, None)
        assert watch.steps == ["start", "stop"]


async def test_in_virtual_time_no_loop_is_watched(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    before = threading.active_count()
    await gate.start()
    await clock.sleep(5)
    assert threading.active_count() == before
    assert gate.loop_delay().samples == 0
    await gate.stop()
