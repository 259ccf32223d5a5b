"""Who paid when and who was told when, as the people see it."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.sim.polling.simulation import PaymentLog, quantile

INTERVAL = 60.0


def ledger(paid: dict[str, float], told: list[tuple[str, float]]) -> PaymentLog:
    made = PaymentLog()
    for key, at in paid.items():
        made.pays(key, at)
    for key, at in told:
        made.tell(key, at)
    return made


def test_times_are_from_the_payment_until_told() -> None:
    waits = ledger({"1": 10, "2": 20}, [("1", 11), ("2", 23)]).waits(300, INTERVAL)

    assert (waits.paid, waits.told, waits.missed, waits.within_interval) == (2, 2, 0, 1.0)
    assert (waits.p50_ms, waits.max_ms) == (1_000, 3_000)


def test_who_was_told_late_was_not_told_in_time() -> None:
    waits = ledger({"1": 0, "2": 0}, [("1", 60), ("2", 60.5)]).waits(300, INTERVAL)

    assert (waits.told, waits.missed, waits.within_interval) == (2, 0, 0.5)


def test_who_was_not_told_is_missed_after_an_interval_and_counts_with_what_he_waited() -> None:
    waits = ledger({"1": 10, "2": 250, "3": 20}, [("3", 21)]).waits(300, INTERVAL)

    assert (waits.told, waits.missed, waits.waiting, waits.within_interval) == (1, 1, 1, 0.5)
    assert (waits.p50_ms, waits.max_ms) == (50_000, 290_000)


def test_whose_interval_is_not_over_does_not_count_for_or_against() -> None:
    made = ledger({"1": 0, "2": 50, "3": 50}, [("2", 51)])

    assert [made.waits(now, INTERVAL).within_interval for now in (55, 100, 300)] == [None, 0.0, 0.3333]


def test_the_second_telling_and_one_without_a_payment_are_seen() -> None:
    waits = ledger({"1": 10}, [("1", 11), ("1", 12), ("9", 12)]).waits(300, INTERVAL)

    assert (waits.doubled, waits.early, waits.max_ms) == (1, 1, 1_000)


def test_nobody_paid_is_no_failure_and_no_division_by_zero() -> None:
    waits = ledger({}, []).waits(300, INTERVAL)

    assert (waits.paid, waits.missed, waits.p99_ms, waits.within_interval) == (0, 0, 0.0, None)


def test_a_bot_that_asks_for_each_stops_asking_when_they_have_paid() -> None:
    # two of three pay, after one and three intervals; the third is asked for all the time
    assert ledger({"1": 60, "2": 180}, []).needed(users=3, now=300, interval=INTERVAL) == 1 + 3 + 5


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_smallest_that_so_many_do_not_exceed(seconds: list[float], share: float) -> None:
    rising = sorted(seconds)
    least = quantile(rising, share)

    assert sum(round(1_000 * number, 1) <= least for number in rising) >= share * len(rising) - 1e-6
    assert sum(round(1_000 * number, 1) < least for number in rising) < share * len(rising) + 1e-6
