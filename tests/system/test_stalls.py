"""A handler that blocks is named: no deadline reaches it."""

import logging
import time

import pytest
from blockbuster import BlockBuster

from tidegate.clock import Clock
from tidegate.inbound import dispatcher
from tidegate.inbound.dispatcher import StallWatch


async def test_who_makes_everybody_wait_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, no_blocking_calls: BlockBuster
) -> None:
    monkeypatch.setattr(dispatcher, "HEARTBEAT_INTERVAL", 0.02)
    monkeypatch.setattr(dispatcher, "STALL_SECONDS", 0.1)
    no_blocking_calls.functions["time.sleep"].deactivate()
    watch = StallWatch(Clock())
    with caplog.at_level(logging.WARNING):
        watch.start()
        await Clock().sleep(0.05)
        time.sleep(0.4)  # noqa: ASYNC251, TID251  (what must not be done)
        await Clock().sleep(0.05)
        watch.stop()

    [record] = caplog.records
    assert "in test_who_makes_everybody_wait_is_named_once (system/test_stalls.py:" in record.getMessage()
