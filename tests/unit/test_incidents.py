"""Incidents are logged in groups, bounded, and told to listeners."""

import logging

import pytest

from tidegate.incidents import MAX_GROUPS, REPEAT_AFTER, Incident, IncidentLog
from tidegate.sim import VirtualClock

TOKEN = "42:" + "A" * 35


def incident(place: str = "pay.py:42", seconds: float = 0.4) -> Incident:
    text = f"loop blocked {seconds} s in {place}"
    return Incident(kind="loop_blocked", text=text, group=f"loop_blocked {place}", seconds=seconds)


async def test_repeated_incidents_become_one_line_a_minute_with_their_number(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    incidents, heard = IncidentLog(clock), list[Incident]()
    incidents.subscribe(heard.append)
    for _ in range(5):
        incidents.note(incident())
        await clock.sleep(1)
    incidents.note(incident("other.py:1"))
    await clock.sleep(REPEAT_AFTER)
    incidents.note(incident(seconds=0.2))

    assert [(one.place or one.group, one.count) for one in heard] == [
        ("loop_blocked pay.py:42", 1),
        ("loop_blocked other.py:1", 1),
        ("loop_blocked pay.py:42", 5),
    ]
    assert heard[-1].longest == 0.4
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "loop blocked 0.4 s in pay.py:42"
    assert lines[-1] == "loop blocked 0.2 s in pay.py:42 (5 times since the last line, 0.4 s at most)"
    assert incidents.counts == {"loop_blocked": 7}


async def test_groups_are_bounded(clock: VirtualClock) -> None:
    incidents = IncidentLog(clock)
    for number in range(3 * MAX_GROUPS):
        incidents.note(incident(f"file{number}.py:1"))
    assert len(incidents._groups) == MAX_GROUPS  # noqa: SLF001


async def test_a_listener_that_fails_keeps_no_other_from_hearing(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    incidents, heard = IncidentLog(clock), list[Incident]()

    def fails(_: Incident) -> None:
        raise RuntimeError("no")

    incidents.subscribe(fails)
    incidents.subscribe(heard.append)
    incidents.note(incident())
    assert len(heard) == 1
    assert "a listener of incidents has failed" in caplog.text


async def test_no_token_is_logged(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        IncidentLog(clock).note(incident(f"http://host/bot{TOKEN}/x"))
    assert "A" * 35 not in caplog.text
    assert "42:" in caplog.text
