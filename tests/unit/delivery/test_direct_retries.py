"""The one retry loop of direct calls: which outcomes are tried again, how long it waits, when it gives up."""

from collections.abc import Sequence

import pytest

from tidegate.delivery.direct import OUTAGE_PATIENCE, DirectRetryPolicy, call_with_retries
from tidegate.model import (
    ChatId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.sim.virtual_time import VirtualClock

ENDS: list[Outcome] = [Delivered(1), Dead("blocked", ""), Unknown("timeout")]
SURELY_NOT_MADE: list[Outcome] = [
    Retry(2.0, "server_error"),
    Unreachable(3.0, "connect"),
    NotSent("late"),
    Migrated(-9),
]


class Script:
    """A call whose attempts end as written."""

    def __init__(self, outcomes: Sequence[Outcome], *, in_lane: bool = False) -> None:
        self.in_lane = in_lane
        self.made: list[float | None] = []  # how long each could wait
        self.chat_id: ChatId | None = None
        self._outcomes = list(outcomes)

    def __str__(self) -> str:
        return "sendMessage to 7"

    async def attempt(self, number: int, max_wait: float | None) -> tuple[Outcome, int]:
        self.made.append(max_wait)
        return self._outcomes.pop(0), number

    def readdress(self, chat_id: ChatId) -> None:
        self.chat_id = chat_id


@pytest.mark.parametrize("end", ENDS)
async def test_an_outcome_that_is_final_ends_the_call(clock: VirtualClock, end: Outcome) -> None:
    result = await call_with_retries(Script([end]), DirectRetryPolicy(5), clock, None)

    assert result == (end, 1, False)


@pytest.mark.parametrize(("outcome", "pause"), [*zip(SURELY_NOT_MADE, (1, 3, 0, 0), strict=True)])
async def test_what_surely_did_not_happen_is_tried_again(
    clock: VirtualClock, outcome: Outcome, pause: float
) -> None:
    result = await call_with_retries(Script([outcome, ENDS[0]]), DirectRetryPolicy(5), clock, None)

    assert (result.outcome, result.answer) == (ENDS[0], 2)
    assert clock.monotonic() == pause


@pytest.mark.parametrize("outcome", SURELY_NOT_MADE)
async def test_only_refusals_are_tried_again_where_the_library_says_so(
    clock: VirtualClock, outcome: Outcome
) -> None:
    policy = DirectRetryPolicy(5, only_refusals=True)

    assert (await call_with_retries(Script([outcome]), policy, clock, None)).outcome == outcome
    assert (await call_with_retries(Script([Refused(4.0), ENDS[0]]), policy, clock, None)).answer == 2


@pytest.mark.parametrize(("in_lane", "waited"), [(True, 0), (False, 4)])
async def test_a_refused_call_waits_in_its_lane_if_it_has_one(
    clock: VirtualClock, *, in_lane: bool, waited: float
) -> None:
    await call_with_retries(
        Script([Refused(4.0), ENDS[0]], in_lane=in_lane), DirectRetryPolicy(5), clock, None
    )

    assert clock.monotonic() == waited


async def test_after_the_last_attempt_its_outcome_is_returned(clock: VirtualClock) -> None:
    script = Script([Retry(1.0, str(number)) for number in range(3)])

    result = await call_with_retries(script, DirectRetryPolicy(3), clock, None)

    assert result == (Retry(1.0, "2"), 3, False)


@pytest.mark.parametrize("in_lane", [True, False])
async def test_a_refusal_longer_than_the_caller_would_wait_is_told_at_once(
    clock: VirtualClock, *, in_lane: bool
) -> None:
    script = Script([Retry(2.0, "server_error"), Refused(60.0)], in_lane=in_lane)

    result = await call_with_retries(script, DirectRetryPolicy(5), clock, 10.0)

    assert result == (Refused(60.0), 2, True)
    assert (clock.monotonic(), script.made) == (1, [10, 9])


async def test_a_call_to_a_chat_that_moved_goes_there(clock: VirtualClock) -> None:
    script = Script([Migrated(-9), ENDS[0]])

    await call_with_retries(script, DirectRetryPolicy(5), clock, None)

    assert script.chat_id == -9


async def test_a_call_to_a_chat_that_moved_goes_there_however_short_its_patience(clock: VirtualClock) -> None:
    script = Script([Migrated(-9), ENDS[0]])

    result = await call_with_retries(script, DirectRetryPolicy(5), clock, 0.0)

    assert (result.outcome, script.chat_id) == (ENDS[0], -9)


async def test_a_short_failure_is_waited_for_and_an_outage_is_told_soon(clock: VirtualClock) -> None:
    waits = [1.0, 2.0, 4.0, 8.0]
    script = Script([Unreachable(wait, "connect", lasted=sum(waits[:i])) for i, wait in enumerate(waits)])

    result = await call_with_retries(script, DirectRetryPolicy(5), clock, None)

    assert result.outcome == Unreachable(4.0, "connect", lasted=3.0)
    assert clock.monotonic() == 3 < OUTAGE_PATIENCE


@pytest.mark.parametrize(
    "trouble", [Unreachable(15.0, "connect"), Unreachable(1.0, "server_error", lasted=34.0)]
)
async def test_a_known_outage_is_told_at_once(clock: VirtualClock, trouble: Outcome) -> None:
    result = await call_with_retries(Script([trouble]), DirectRetryPolicy(5), clock, None)

    assert (result.outcome, clock.monotonic()) == (trouble, 0)


async def test_a_caller_whose_time_is_over_hears_of_the_trouble_and_not_of_a_limit(
    clock: VirtualClock,
) -> None:
    script = Script([NotSent("late"), NotSent("late")])

    result = await call_with_retries(script, DirectRetryPolicy(5), clock, 0.0)

    assert result.outcome == NotSent("late")
    assert script.made == [0, 0]
