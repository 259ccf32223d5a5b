"""The throttle of logins: failures of an address are counted, and nothing else."""

import pytest

from tidegate.ops.login_throttle import FAILURE_SECONDS, LOGIN_FAILURES, MOST_ADDRESSES, LoginThrottle
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture
def throttle(clock: VirtualClock) -> LoginThrottle:
    return LoginThrottle(clock)


def fail(throttle: LoginThrottle, address: str | None, times: int = LOGIN_FAILURES) -> None:
    for _ in range(times):
        throttle.failed(address)


async def test_an_address_that_fails_too_often_waits_and_others_do_not(
    throttle: LoginThrottle, clock: VirtualClock
) -> None:
    fail(throttle, "192.0.2.1", LOGIN_FAILURES - 1)
    assert throttle.allows("192.0.2.1") == 0
    fail(throttle, "192.0.2.1", 5)

    assert throttle.allows("192.0.2.1") == pytest.approx(FAILURE_SECONDS)
    assert throttle.allows("192.0.2.2") == 0
    await clock.sleep(FAILURE_SECONDS)
    assert throttle.allows("192.0.2.1") == 0
    fail(throttle, "192.0.2.1", 1)
    assert throttle.allows("192.0.2.1") > 0


async def test_asking_costs_nothing(throttle: LoginThrottle) -> None:
    for _ in range(10 * LOGIN_FAILURES):
        assert throttle.allows("192.0.2.1") == 0
    assert len(throttle) == 0


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),  # of one network: one person has them all
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        (None, "", True),
        ("unix:/run/a", "unix:/run/b", False),
    ],
)
async def test_what_counts_as_one_address(
    throttle: LoginThrottle, one: str | None, other: str, *, together: bool
) -> None:
    fail(throttle, one)
    assert (throttle.allows(other) > 0) == together


async def test_addresses_are_bounded(throttle: LoginThrottle) -> None:
    for number in range(2 * MOST_ADDRESSES):
        throttle.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(throttle) == MOST_ADDRESSES + 1
    assert throttle.allows("192.0.2.1") > 0  # all others are one
