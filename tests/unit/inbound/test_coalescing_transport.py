"""Head and body of an answer leave together, and before the connection ends."""

import asyncio
from unittest.mock import Mock, call

from tidegate.clock import Clock
from tidegate.inbound.server import TAKE_TIMEOUT, CoalescingTransport
from tidegate.sim.virtual_time import VirtualClock


async def test_what_is_written_in_one_turn_leaves_at_once(clock: Clock) -> None:
    wire = Mock(spec=asyncio.Transport)
    transport = CoalescingTransport(wire)
    transport.write(b"head ")
    transport.write(b"body")
    assert wire.write.mock_calls == []
    await clock.sleep(0)
    transport.write(b"next")
    await clock.sleep(0)
    assert wire.write.mock_calls == [call(b"head body"), call(b"next")]


async def test_what_was_written_leaves_before_the_connection_ends(clock: Clock) -> None:
    wire = Mock(spec=asyncio.Transport)
    wire.get_write_buffer_size.return_value = 0
    transport = CoalescingTransport(wire)
    transport.write(b"last")
    transport.close()
    await clock.sleep(0)
    assert wire.mock_calls == [call.write(b"last"), call.close(), call.get_write_buffer_size()]


async def test_a_connection_that_ends_while_its_client_takes_nothing_is_cut(clock: VirtualClock) -> None:
    wire = Mock(spec=asyncio.Transport)
    wire.get_write_buffer_size.return_value = 9
    CoalescingTransport(wire).close()
    await clock.sleep(TAKE_TIMEOUT - 1)
    assert not wire.abort.called
    await clock.sleep(2)
    assert wire.abort.called
