"""What is forecast of a broadcast is what happens, if nothing else is sent."""

import pytest

from tidegate.broadcast.forecast import seconds_to_send
from tidegate.errors import BadInputError
from tidegate.model import BotLimits, Rate
from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import Office, people


@pytest.mark.parametrize(
    ("messages", "rate", "seconds"),
    [
        (0, "30/1", 0),
        (1, "30/1", 0),
        (30, "30/1", 29 / 30),
        (31, "30/1", 1.05),
        (1, "20/60", 0),
        (21, "20/60", 60.05),
    ],
)
def test_the_last_message_leaves_after_so_many_windows(messages: int, rate: str, seconds: float) -> None:
    assert seconds_to_send(messages, Rate.parse(rate)) == pytest.approx(seconds)


async def test_a_broadcast_takes_as_long_as_the_gate_forecasts(here: Office, clock: VirtualClock) -> None:
    said = await here.gate.forecast(600)
    async with here.gate.worker():
        await (await here.broadcast("sale", people(600), "Hello {name}!")).finished()

    assert said.ends_at == pytest.approx(clock.now(), rel=0, abs=1)
    assert (said.messages, said.rate) == (600, Rate(30, 1))
    assert said.seconds == pytest.approx(clock.monotonic(), abs=1)


@pytest.mark.parametrize("messages", ["many", "2000", 1.5, -1, None, [1001]])
async def test_a_forecast_of_what_is_no_number_says_so(here: Office, messages: object) -> None:
    with pytest.raises(BadInputError, match=r"^messages is .*: give how many, as a whole number$"):
        await here.gate.forecast(messages)  # type: ignore[arg-type]


async def test_a_paid_broadcast_is_forecast_by_its_own_limit(here: Office) -> None:
    assert (await here.gate.forecast(1_000, allow_paid_broadcast=True)).seconds <= 1


async def test_a_broadcast_of_a_bot_with_its_own_limit_is_forecast_by_that(here: Office) -> None:
    await here.gate.set_limits(BotLimits(bot=Rate(5, 1)))
    assert (await here.gate.forecast(100)).rate == Rate(5, 1)
