"""learned.lua against learned.py: the same 429s and the same quiet teach the same."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from contract.stores import redis_url
from tidegate.model import Rate
from tidegate.pacing.learned import LearnedLimit
from tidegate.sim.virtual_time import EPOCH
from tidegate.stores.redis.scripts import LEARNED_CONSTANTS, assemble

QUICK: Final = settings(max_examples=settings().max_examples // 2, phases=[Phase.explicit, Phase.generate])
SOURCE: Final = assemble(shared=("shared/learned",), constants=LEARNED_CONSTANTS)
# Each event finds what was learned as it is stored, and leaves it stored.
DRIVER: Final = """
local told, learned = {}, nil
for i, event in ipairs(cmsgpack.unpack(ARGV[1])) do
  local what, now, rule, in_burst = unpack(event)
  learned = learned or Learned.new(rule)
  local changed
  if what == 'refused' then
    local before = learned.cut_at
    Learned.refused(learned, rule, now, in_burst)
    changed = learned.cut_at ~= before
  else
    changed = Learned.quiet(learned, rule, now)
  end
  learned = cmsgpack.unpack(cmsgpack.pack(learned))
  local rate = Learned.rate(learned, rule)
  told[i] = { changed, rate[1], rate[2], Learned.stale(learned, now), learned.bad == nil }
end
return cmsgpack.pack(told)
"""

Event = tuple[bool, float]  # whether it is a 429, and seconds since the one before

rules = st.builds(Rate, st.integers(1, 40), st.sampled_from([1.0, 3.0, 60.0]))
events = st.lists(
    st.tuples(
        st.booleans(), st.floats(0, 5) | st.floats(0, 500) | st.sampled_from([0.0, 1.0, 10.0, 4_000.0])
    ),
    min_size=1,
    max_size=50,
)


def play(
    rule: Rate, script: list[Event], *, is_burst: bool = False, in_burst: bool = False
) -> tuple[list[Any], list[Any]]:
    """The script as Lua is told it, and what Python says."""
    learned, now = LearnedLimit(rule, is_burst=is_burst), EPOCH
    packed, told = [], []
    for refused, gap in script:
        now += gap
        changed = learned.refused(now, in_burst=in_burst) if refused else learned.quiet(now)
        rate = learned.rate
        told.append((changed, rate.count, pytest.approx(rate.seconds), learned.stale(now), learned.intact))
        packed.append(
            ("refused" if refused else "quiet", now, (rule.count, rule.seconds, is_burst), in_burst)
        )
    return packed, told


def play_in_redis(packed: list[Any]) -> list[tuple[Any, ...]]:
    with Redis.from_url(redis_url()) as redis:
        reply = redis.eval(f"{SOURCE}\n{DRIVER}", 0, msgspec.msgpack.encode(packed))
    return [tuple(one) for one in msgspec.msgpack.decode(reply)]


@given(rules, events, st.booleans(), st.booleans())
@QUICK
def test_the_same_events_give_the_same_limit(
    rule: Rate,
    script: list[Event],
    is_burst: bool,  # noqa: FBT001
    in_burst: bool,  # noqa: FBT001
) -> None:
    packed, told = play(rule, script, is_burst=is_burst, in_burst=in_burst)

    assert play_in_redis(packed) == told


def test_a_limit_goes_down_to_the_lowest_step_and_all_the_way_up_again() -> None:
    down = [(True, 10_000.0)] * 60
    up = [(False, 100_000.0)] * 200

    packed, told = play(Rate(30, 1.0), down + up)

    assert play_in_redis(packed) == told
    assert told[59][1:3] == (1, 1.25**21)
    assert told[-1] == (False, 30, 1.0, True, True)


@given(rules, rules, events, events)
@QUICK
def test_a_rule_that_was_lowered_since_holds_and_is_cut_by_the_next_429(
    rule: Rate, lower: Rate, before: list[Event], since: list[Event]
) -> None:
    lower = Rate(min(rule.count, lower.count), rule.seconds)
    packed, now = [], EPOCH
    for its, script in ((rule, before), (lower, since)):
        for refused, gap in script:
            now += gap
            packed.append(("refused" if refused else "quiet", now, (its.count, its.seconds)))

    told = play_in_redis(packed)[len(before) :]

    for (what, *_), (changed, count, seconds, *_) in zip(packed[len(before) :], told, strict=True):
        assert count / seconds <= lower.count / lower.seconds
        if what == "refused" and changed:
            assert count / seconds < lower.count / lower.seconds


@given(rules, rules, events, events)
@example(Rate(30, 1.0), Rate(20, 1.0), [(True, 0.0)], [(False, 100.0)] * 5)
@QUICK
def test_in_python_a_rule_that_was_lowered_over_a_restart_holds_too(
    rule: Rate, lower: Rate, before: list[Event], since: list[Event]
) -> None:
    lower, now = Rate(min(rule.count, lower.count), rule.seconds), EPOCH
    learned = LearnedLimit(rule)
    for refused, gap in before:
        now += gap
        _ = learned.refused(now) if refused else learned.quiet(now)
    learned = LearnedLimit.load(lower, learned.dump(now), now, 0.0)

    for refused, gap in since:
        now += gap
        _ = learned.refused(now) if refused else learned.quiet(now)
        assert learned.rate.count / learned.rate.seconds <= lower.count / lower.seconds
