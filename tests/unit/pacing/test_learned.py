"""What a limit learns from 429s."""

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model import Rate
from tidegate.pacing.learned import FORGET_AFTER, PROBE_AFTER, STEP_UP_AFTER, LearnedLimit, LearnedSnapshot

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


def test_at_first_it_is_the_rule() -> None:
    learned = LearnedLimit(Rate(30, 1))

    assert learned.intact
    assert learned.rate == Rate(30, 1)
    assert not learned.quiet(1e9)  # nothing to recover from


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


def test_it_waits_for_ten_of_its_own_windows_before_each_step() -> None:
    learned = LearnedLimit(Rate(20, 60))
    learned.refused(0.0)

    assert not learned.quiet(599.0)
    assert learned.quiet(600.0)
    assert learned.rate == Rate(18, 60)


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


def probing() -> tuple[LearnedLimit, float]:
    """A limit of 30 that was refused once, and tries 30 again now."""
    learned, now = LearnedLimit(Rate(30, 1)), 0.0
    learned.refused(now)
    while learned.rate.count < 30:
        now += 1
        learned.quiet(now)
    return learned, now


def test_a_probe_that_is_refused_goes_one_step_back_and_waits_twice_as_long() -> None:
    learned, now = probing()

    assert learned.refused(now + 1)

    assert learned.rate == Rate(29, 1)
    assert not learned.quiet(now + 1 + 2 * PROBE_AFTER - 0.5)
    assert learned.quiet(now + 1 + 2 * PROBE_AFTER)
    assert learned.rate == Rate(30, 1)


def test_a_probe_that_holds_makes_way_for_the_next_step_at_the_first_interval() -> None:
    learned = LearnedLimit(Rate(30, 1))
    learned.refused(0.0)  # from 30 to 25
    learned.refused(1.0)  # from 25 to 21: 25 is bad
    now, steps, is_refused = 1.0, list[tuple[float, int]](), False
    while not learned.intact and now < 2_000:
        now += 1
        if learned.quiet(now):
            steps.append((now, learned.rate.count))
        if learned.rate.count == 25 and not is_refused:
            is_refused = learned.refused(now)

    assert steps == [
        *[(11, 22), (21, 23), (31, 24)],  # ten windows each
        *[(91, 25), (211, 25)],  # the bad one after a minute; refused again, after two
        *[(331, 26), (391, 27), (451, 28), (511, 29), (571, 30), (631, 30)],  # it held for two: a minute each
    ]
    assert learned.refused(now)
    assert learned.rate == Rate(25, 1)  # nothing is left of it: as at first


events = st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=12)


def follow(learned: LearnedLimit, happened: list[tuple[bool, int]], now: float) -> list[Rate]:
    """The rates after each of these: a refusal, or quiet, and the seconds before it."""
    rates = []
    for is_refused, gap in happened:
        now += gap
        if is_refused:
            learned.refused(now)
        learned.quiet(now)
        rates.append(learned.rate)
    return rates


@given(st.integers(10, 40), events, st.integers(0, 500), events)
def test_a_limit_that_was_stored_goes_on_as_if_there_had_been_no_downtime(
    count: int, before: list[tuple[bool, int]], downtime: int, after: list[tuple[bool, int]]
) -> None:
    rule = Rate(count, 1)
    learned = LearnedLimit(rule)
    follow(learned, before, 0.0)
    stopped = float(sum(gap for _, gap in before))
    stored = msgspec.msgpack.encode(learned.dump(stopped))

    started = 1_000.0  # of another machine's clock
    restored = LearnedLimit.load(
        rule, msgspec.msgpack.decode(stored, type=LearnedSnapshot), started, float(downtime)
    )

    assert (restored.rate, restored.intact) == (learned.rate, learned.intact)
    assert restored.stale(started + 3_000) == learned.stale(stopped + downtime + 3_000)
    assert follow(restored, after, started) == follow(learned, after, stopped + downtime)
    assert restored.intact == learned.intact


def test_a_limit_that_was_stored_waits_for_what_is_left_before_its_next_step() -> None:
    learned = LearnedLimit(Rate(30, 1))
    learned.refused(100.0)

    restored = LearnedLimit.load(Rate(30, 1), learned.dump(102.0), 5_000.0, 3.0)

    assert not restored.quiet(5_004.9)  # two before it was stored, three until it was loaded, five since
    assert restored.quiet(5_005.0)


def test_a_limit_stored_in_the_middle_of_a_probe_is_still_probing() -> None:
    learned, now = probing()

    restored = LearnedLimit.load(Rate(30, 1), learned.dump(now), now, 0.0)

    assert not restored.intact
    restored.refused(now + 1)
    assert restored.rate == Rate(29, 1)


def test_a_limit_that_was_stored_keeps_to_a_rule_that_was_lowered_since() -> None:
    learned = LearnedLimit(Rate(30, 1))
    learned.refused(0.0)
    stored = learned.dump(0.0)  # 25, and 30 is bad

    between = LearnedLimit.load(Rate(27, 1), stored, 0.0, 0.0)
    assert (between.rate, between.intact) == (Rate(25, 1), False)
    assert [between.quiet(at) and between.rate.count for at in (10.0, 70.0, 130.0)] == [26, 27, 27]
    assert between.intact

    for count in (25, 20):
        below = LearnedLimit.load(Rate(count, 1), stored, 0.0, 0.0)
        assert (below.rate, below.intact) == (Rate(count, 1), True)


def test_a_probe_above_a_rule_that_was_lowered_since_is_over() -> None:
    learned, now = probing()

    restored = LearnedLimit.load(Rate(10, 1), learned.dump(now), now, 0.0)
    restored.refused(now + 1)

    assert restored.rate == Rate(8, 1)


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


@given(st.integers(2, 20), st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 500)), max_size=100))
def test_a_burst_never_allows_more_than_its_rule_or_its_average(
    count: int, events: list[tuple[bool, bool, float]]
) -> None:
    rule = Rate(count, float(count))
    learned, now = LearnedLimit(rule, is_burst=True), 0.0
    for refused, in_burst, gap in events:
        now += gap
        if refused:
            learned.refused(now, in_burst=in_burst)
        else:
            learned.quiet(now)
        assert learned.rate.count <= count
        assert per_second(learned.rate) <= 1 + 1e-9
        if learned.intact:
            assert learned.rate == rule


def test_a_refused_burst_is_over_and_comes_back_step_by_step() -> None:
    learned = LearnedLimit(Rate(5, 5.0), is_burst=True)

    assert learned.refused(0.0, in_burst=True)
    assert learned.rate == Rate(1, 1.0)
    seen, now = [], 0.0
    while not learned.intact:
        now += 1.0
        if learned.quiet(now):
            seen.append(str(learned.rate))
    assert seen[:4] == ["2/2", "3/3", "4/4", "5/5"]
    assert now < 10 * PROBE_AFTER
