"""What a limit learns from 429s."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model import Rate
from tidegate.pacing.learned import FORGET_AFTER, PROBE_AFTER, STEP_UP_AFTER, LearnedLimit

rules = st.builds(Rate, st.integers(1, 40), st.sampled_from([1.0, 3.0, 60.0]))


def per_second(rate: Rate) -> float:
    return rate.count / rate.seconds


def refuse_until(learned: LearnedLimit, allowed: float, start: float = 0.0) -> float:
    """A 429 in each window while it is faster than `allowed`; returns when that ended."""
    now = start
    while per_second(learned.rate) > allowed:
        learned.refused(now)
        now += learned.rate.seconds
    return now


def live(learned: LearnedLimit, allowed: float, start: float, seconds: float) -> tuple[float, int]:
    """The far end really allows `allowed` calls a second. Returns the time and how often it refused."""
    now, refusals = start, 0
    while now < start + seconds:
        now += learned.rate.seconds / 2
        learned.quiet(now)
        if per_second(learned.rate) > allowed:
            refusals += learned.refused(now)
    return now, refusals


@given(rules, st.lists(st.tuples(st.booleans(), st.floats(0, 500)), max_size=100))
def test_it_never_allows_more_than_the_rule(rule: Rate, events: list[tuple[bool, float]]) -> None:
    learned, now = LearnedLimit(rule), 0.0
    for refused, gap in events:
        now += gap
        if refused:
            learned.refused(now)
        else:
            learned.quiet(now)
        assert 0 < per_second(learned.rate) <= per_second(rule)
        assert learned.rate.seconds >= rule.seconds
        if learned.intact:
            assert learned.rate == rule


@given(rules)
def test_it_cuts_once_in_a_window_and_always_to_less(rule: Rate) -> None:
    learned = LearnedLimit(rule)
    before = per_second(learned.rate)

    assert learned.refused(100.0)
    once = learned.rate

    assert per_second(once) < before
    assert not learned.refused(100.0 + 0.99 * once.seconds)
    assert learned.rate == once
    assert learned.refused(100.0 + once.seconds)
    assert per_second(learned.rate) < per_second(once)


def test_a_limit_of_one_call_stretches_its_window() -> None:
    learned = LearnedLimit(Rate(1, 1))

    learned.refused(0.0)
    assert learned.rate == Rate(1, 1.25)
    learned.refused(2.0)
    assert learned.rate == Rate(1, 1.5625)


def test_the_stretch_has_an_end() -> None:
    learned, now = LearnedLimit(Rate(1, 1)), 0.0
    for _ in range(100):
        learned.refused(now)
        now += learned.rate.seconds

    assert 100 < learned.rate.seconds < 120


@given(rules)
def test_without_further_refusals_it_returns_to_the_rule(rule: Rate) -> None:
    learned = LearnedLimit(rule)
    learned.refused(0.0)

    live(learned, float("inf"), 0.0, (STEP_UP_AFTER * rule.seconds * 2 + PROBE_AFTER) * (rule.count + 2))

    assert learned.rate == rule
    assert learned.intact


def test_it_goes_up_one_step_at_a_time() -> None:
    learned = LearnedLimit(Rate(30, 1))
    learned.refused(0.0)
    assert learned.rate == Rate(25, 1)

    assert not learned.quiet(9.9)
    assert learned.quiet(10.0)
    assert learned.rate == Rate(26, 1)


def test_a_step_that_was_refused_is_tried_again_at_doubling_intervals() -> None:
    learned, now, tries = LearnedLimit(Rate(30, 1)), 0.0, []
    while now < 3_000:
        now += 0.5
        learned.quiet(now)
        if per_second(learned.rate) > 20 and learned.refused(now):
            tries.append(now)

    probes = tries[-5:]
    gaps = [later - earlier for earlier, later in itertools.pairwise(probes)]
    assert all(1.9 < later / earlier < 2.1 for earlier, later in itertools.pairwise(gaps))


@settings(max_examples=25)
@given(st.integers(5, 40), st.data())
def test_it_settles_on_a_true_limit_below_the_rule(count: int, data: st.DataObject) -> None:
    allowed = data.draw(st.integers(1, count))
    learned = LearnedLimit(Rate(count, 1))
    now = refuse_until(learned, allowed)
    now, _ = live(learned, allowed, now, 3_600)

    _, refusals = live(learned, allowed, now, 3_600)

    assert refusals <= 2
    assert allowed - 1 <= learned.rate.count <= allowed


def test_what_nobody_calls_any_more_is_stale_after_an_hour() -> None:
    learned = LearnedLimit(Rate(30, 1))
    assert learned.stale(0.0)

    learned.refused(100.0)

    assert not learned.stale(100.0 + FORGET_AFTER)
    assert learned.stale(100.1 + FORGET_AFTER)
