"""window.lua against window.py: the same calls, and the same slots are free.

Redis's is never freer. A slot of a window of up to 128 is free a microsecond later than Python's, one of a
larger window a 128th of its seconds later at most. Times are whole milliseconds: sums are exact in Python.
"""

import math
from typing import Any, Final, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from contract.stores import redis_url
from tidegate.model import Rate
from tidegate.pacing.window import Window
from tidegate.sim.virtual_time import EPOCH
from tidegate.stores.redis.scripts import assemble

FINEST: Final = 128  # slots up to which Redis remembers each by itself
TICK: Final = 2e-6  # seconds: Redis's own microsecond, and the rounding of today's date in a double
FEWER: Final = settings(max_examples=settings().max_examples // 2)
SOURCE: Final = assemble(shared=("shared/window",))
# Each operation finds the window as it is stored, and leaves it stored.
DRIVER: Final = """
local kept, told = nil, {}
for i, operation in ipairs(cmsgpack.unpack(ARGV[1])) do
  local what, now, rate, cost, at, later = unpack(operation)
  local window = Window.open(kept, now)
  if what == 'take' then window.held = window.held + cost end
  if what == 'give_back' then window.held = window.held - cost end
  if what == 'answered' then Window.answered(window, rate, at, cost, now) end
  local stored = Window.stored(window)
  kept = stored and cmsgpack.unpack(cmsgpack.pack(stored)) or nil
  told[i] = {
    Window.free(window, rate), Window.fits(window, rate, cost), Window.wait(window, rate, cost, now),
    Window.free(Window.open(kept, later), rate), stored == nil, #window.cooling / 2,
  }
end
return cmsgpack.pack(told)
"""


class Operation(NamedTuple):
    """What is done `gap` after the one before; `number` says to which call in flight. In milliseconds."""

    what: str
    gap: int
    cost: int
    number: int
    age: int  # of an answer when it is told


class Told(NamedTuple):
    """What a window says after an operation; `idle` if nothing has to be kept of it."""

    free: int
    fits: bool
    wait: float
    free_later: int  # after the longest that Redis may be late
    idle: bool
    places: int = 0  # that its list takes


class Twin(NamedTuple):
    now: Told
    just_before: Told  # a millisecond earlier: what gets free at this very instant is not free yet


operations = st.lists(
    st.builds(
        Operation,
        what=st.sampled_from(["take", "take", "answered", "give_back", "look"]),
        gap=st.integers(0, 500) | st.just(0) | st.just(420),
        cost=st.integers(1, 9),
        number=st.integers(0, 50),
        age=st.integers(0, 300),
    ),
    min_size=1,
    max_size=60,
)
few = st.builds(Rate, st.integers(1, 7), st.sampled_from([420, 1_260]))
many = st.builds(Rate, st.integers(FINEST + 1, 400), st.sampled_from([1_000, 60_000]))


def late_by(rate: Rate) -> int:
    """Milliseconds that a slot may be late at most, but for the tick."""
    return math.ceil(rate.seconds / FINEST) if rate.count > FINEST else 0


def play(
    rates: list[Rate], script: list[Operation], *, is_burst: bool = False
) -> tuple[list[Any], list[Twin]]:
    """The script as Lua is told it, and what Python's window says to it."""
    window, now, in_flight, told = Window.of(rates[0], is_burst=is_burst), 0, [0][:0], []
    packed: list[Any] = []
    for place, (what, gap, cost, number, age) in enumerate(script):
        now += gap
        rate = rates[place % len(rates)]
        window.resize(rate)
        if what in {"answered", "give_back"} and not in_flight:
            what = "look"  # noqa: PLW2901  (nothing can be answered)
        if what == "take":
            window.take(cost)
            in_flight.append(cost)
        elif what != "look":
            cost = in_flight.pop(number % len(in_flight))  # noqa: PLW2901  (that call's)
        at = now - min(age, gap)
        if what == "answered":
            window.answered(at, cost)
        elif what == "give_back":
            window.give_back(cost)
        later = now + late_by(rate) + 1
        told.append(Twin(ask(window, now, cost, later), ask(window, now - 1, cost, later)))
        told_rate = (rate.count, rate.seconds / 1_000, *([window.part] if is_burst else []))
        packed.append((what, seconds(now), told_rate, cost, seconds(at), seconds(later)))
    return packed, told


def ask(window: Window, now: int, cost: int, later: int) -> Told:
    """Of a copy: a window forgets what has cooled, and is asked about the past here."""

    def copy() -> Window:
        cooling = sorted(window.cooling)[window.cooled :]
        return Window(window.count, window.seconds, window.held, cooling, part=window.part)

    wait = copy().wait(now, cost)
    return Told(copy().free(now), copy().fits(now, cost), wait / 1_000, copy().free(later), copy().idle(now))


def seconds(milliseconds: int) -> float:
    return EPOCH + milliseconds / 1_000


def play_in_redis(packed: list[Any]) -> list[Told]:
    with Redis.from_url(redis_url()) as redis:
        reply = redis.eval(f"{SOURCE}\n{DRIVER}", 0, msgspec.msgpack.encode(packed))
    return [Told(*one) for one in msgspec.msgpack.decode(reply)]


@given(few, operations, st.booleans())
@FEWER
def test_a_slot_is_free_a_microsecond_after_pythons_and_not_before(
    rate: Rate,
    script: list[Operation],
    is_burst: bool,  # noqa: FBT001
) -> None:
    packed, expected = play([rate], script, is_burst=is_burst)

    for lua, twin in zip(play_in_redis(packed), expected, strict=True):
        assert (lua.free, lua.fits, lua.idle) == (
            twin.just_before.free,
            twin.just_before.fits,
            twin.just_before.idle,
        )
        assert lua.free_later == twin.now.free_later
        assert same_wait(lua.wait, twin.just_before.wait - 0.001 if twin.just_before.wait else 0.0)


@given(st.lists(few, min_size=2, max_size=4), operations)
@FEWER
def test_a_window_whose_rate_changes_says_the_same(rates: list[Rate], script: list[Operation]) -> None:
    packed, expected = play(rates, script)

    for lua, twin in zip(play_in_redis(packed), expected, strict=True):
        assert (lua.free, lua.fits) == (twin.just_before.free, twin.just_before.fits)
        assert same_wait(lua.wait, twin.just_before.wait - 0.001 if twin.just_before.wait else 0.0)


@given(many, operations)
@FEWER
def test_a_large_window_is_never_freer_and_a_128th_of_its_seconds_late_at_most(
    rate: Rate, script: list[Operation]
) -> None:
    script = [one._replace(cost=one.cost * rate.count // 8 + 1) for one in script]  # else nothing binds
    packed, expected = play([rate], script)

    for lua, twin in zip(play_in_redis(packed), expected, strict=True):
        python = twin.now
        assert lua.free <= python.free <= lua.free_later
        assert python.fits or not lua.fits
        assert lua.places <= FINEST + 2 + FINEST * 9 // 8  # a call larger than the window cools for longer
        if python.wait == math.inf:
            assert lua.wait == math.inf
        else:
            assert python.wait - TICK <= lua.wait <= python.wait + rate.seconds / 1_000 / FINEST + TICK


OVERFILL: Final = """
local now, kept = tonumber(ARGV[1]), nil
local rate = { 5, 60 }
for i = 1, 5000 do
  local window = Window.open(kept, now + i / 1000)
  Window.take(window, rate, 1)
  Window.answered(window, rate, now + i / 1000, 1, now + i / 1000)
  kept = Window.stored(window)
end
local window = Window.open(kept, now + 5)
local wait = Window.wait(window, rate, 1, now + 5)
return cmsgpack.pack({ Window.free(window, rate), wait, #window.cooling / 2 })
"""


def test_a_window_that_urgent_calls_overfill_stays_small() -> None:
    with Redis.from_url(redis_url()) as redis:
        reply = redis.eval(f"{SOURCE}\n{OVERFILL}", 0, f"{EPOCH:.17g}")
    free, wait, places = msgspec.msgpack.decode(reply)

    assert free == 5 - 5_000
    assert 59.996 - TICK <= wait <= 59.996 + 60 / FINEST + TICK
    assert places <= 3 * FINEST


def same_wait(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= TICK


MERGE: Final = """
local one, other, rate, now = unpack(cmsgpack.unpack(ARGV[1]))
one, other = Window.open(one, now), Window.open(other, now)
Window.merge(one, other)
local waits = {}
for cost = 1, rate[1] do waits[cost] = Window.wait(one, rate, cost, now) end
return cmsgpack.pack({ Window.free(one, rate), waits, Window.free(other, rate), other.held })
"""

cooling = st.lists(st.integers(-500, 2_000), max_size=8).map(sorted)


@given(cooling, cooling, st.integers(0, 3), st.integers(0, 3))
@FEWER
def test_merged_windows_hold_what_both_held_and_what_is_in_flight_stays(
    one: list[int], other: list[int], held: int, held_by_other: int
) -> None:
    stored = [
        [held, *(part for at in one for part in (seconds(at), 1))],
        [held_by_other, *(part for at in other for part in (seconds(at), 1))],
        (20, 1.0),
        seconds(0),
    ]
    python = Window(20, 1_000, held, sorted([*one, *other]))

    with Redis.from_url(redis_url()) as redis:
        reply = redis.eval(f"{SOURCE}\n{MERGE}", 0, msgspec.msgpack.encode(stored))
    free, waits, free_of_other, still_held = msgspec.msgpack.decode(reply)

    assert free == python.free(0)
    assert all(same_wait(wait, python.wait(0, cost) / 1_000) for cost, wait in enumerate(waits, 1))
    assert (free_of_other, still_held) == (20 - held_by_other, held_by_other)
