"""Many errors within a minute are told in one line, with the most frequent."""

import logging
from collections.abc import AsyncIterator

import pytest

from tidegate.incidents import Incident, IncidentLog
from tidegate.ops.error_spike import SPIKE_SECONDS, ErrorSpikes
from tidegate.sim import VirtualClock

LIMIT = 5
log = logging.getLogger("tidegate.inbound")


@pytest.fixture
async def told(clock: VirtualClock) -> AsyncIterator[list[Incident]]:
    incidents, told = IncidentLog(clock), list[Incident]()
    incidents.subscribe(told.append)
    spikes = ErrorSpikes(incidents, clock, LIMIT)
    spikes.start()
    yield told
    spikes.stop()


async def test_a_spike_is_told_once_with_the_error_that_was_most_of_it(
    told: list[Incident], clock: VirtualClock
) -> None:
    for number in range(4):
        log.error("update %s is parked", number)
        await clock.sleep(1)
    logging.getLogger("tidegate").error("the store is away")
    logging.getLogger("aiogram.event").error("the handler failed")

    [incident] = told
    assert incident.kind == "error_spike"
    assert incident.text == "6 errors within 4 s, most often (4 times): update 0 is parked"


async def test_errors_that_come_slowly_are_no_spike(told: list[Incident], clock: VirtualClock) -> None:
    for _ in range(10 * LIMIT):
        log.error("something")
        await clock.sleep(SPIKE_SECONDS / LIMIT + 1)
    assert told == []


async def test_warnings_do_not_count(told: list[Incident]) -> None:
    for _ in range(10 * LIMIT):
        log.warning("something")
    assert told == []


async def test_a_spike_that_goes_on_is_told_again_a_minute_later_with_its_number(
    told: list[Incident], clock: VirtualClock
) -> None:
    for _ in range(70 * (LIMIT + 1)):
        log.error("something")
        await clock.sleep(1 / (LIMIT + 1))
    first, second = told
    assert first.count == 1
    assert second.count == pytest.approx(60, abs=1)


async def test_an_exception_is_named_by_its_type(told: list[Incident]) -> None:
    for number in range(LIMIT + 1):
        log.error("update %s failed\nat length", number, exc_info=OSError(number))
    [incident] = told
    assert incident.text.endswith("(6 times): update 0 failed (OSError)")


async def test_no_token_is_told(told: list[Incident]) -> None:
    for _ in range(LIMIT + 1):
        log.error("bot 42:%s failed", "A" * 35)
    [incident] = told
    assert incident.text.endswith("(6 times): bot 42:… failed")


async def test_nothing_is_counted_after_it_was_stopped(clock: VirtualClock) -> None:
    incidents = IncidentLog(clock)
    spikes = ErrorSpikes(incidents, clock, LIMIT)
    spikes.start()
    spikes.stop()
    for _ in range(10 * LIMIT):
        log.error("something")
    assert incidents.counts == {}
