"""A throttle in memory remembers little, and not for long."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.inbound.throttle import ALLOWED, Charge, Throttle, Throttled, ThrottleRules
from tidegate.inbound.updates import UpdateInfo
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.throttle import ExpiringMap, MemoryThrottle

USERS = 30_000


async def test_tens_of_thousands_of_flooders_are_forgotten_once_they_are_quiet(clock: VirtualClock) -> None:
    rules = ThrottleRules(user=Rate(1, 60), chat=Rate(1, 60), stubborn=1, pause=120)
    buckets = MemoryThrottle(rules, clock)
    for user in range(USERS):
        await buckets.charge(Charge(42, user, -user, 1, album=str(user)))
        await buckets.charge(Charge(42, user, -user, 1))
    assert len(buckets) == 4 * USERS  # a bucket, its chat's, a pause, an album

    for _ in range(6):  # somebody else goes on
        await clock.sleep(60)
        await buckets.charge(Charge(42, -1, 1, 1, album="x"))
    assert len(buckets) <= 4


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 40)), max_size=60))
def test_what_was_set_is_kept_for_its_lifetime(steps: list[tuple[int, float]]) -> None:
    fading: ExpiringMap[float] = ExpiringMap(10)
    set_at: dict[int, float] = {}
    now = 0.0
    for key, gap in steps:
        now += gap
        for known, at in set_at.items():
            if now - at < 10:
                assert fading.get(known, now) == at
        fading.set(key, now, now)
        set_at[key] = now
    assert len(fading) <= len(set_at)


async def test_callbacks_are_held_where_that_is_asked_for(clock: VirtualClock) -> None:
    rules = ThrottleRules(user=Rate(1, 60), never=frozenset({"payment"}))
    throttle = Throttle(rules, MemoryThrottle(rules, clock))
    press = UpdateInfo("callback_query", 1, -100, is_private=False)

    verdicts = [await throttle.check(press, 42) for _ in range(4)]

    # Two, at half the price; and the user who presses is told, as nobody else sees it.
    assert verdicts[:2] == [ALLOWED, ALLOWED]
    assert verdicts[2:] == [
        Throttled(notify=True, wait=30),
        Throttled(notify=False, wait=30),
    ]


async def test_what_is_free_is_not_counted(clock: VirtualClock) -> None:
    rules = ThrottleRules(user=Rate(1, 60), costs={"edited_message": 0})
    throttle = Throttle(rules, MemoryThrottle(rules, clock))
    for _ in range(10):
        assert await throttle.check(UpdateInfo("edited_message", 1, 1, is_private=True), 42) == ALLOWED
    assert await throttle.check(UpdateInfo("message", 1, 1, is_private=True), 42) == ALLOWED


async def test_chats_may_have_no_limit(clock: VirtualClock) -> None:
    rules = ThrottleRules(chat=None)
    throttle = Throttle(rules, MemoryThrottle(rules, clock))
    for user in range(1_000):
        assert await throttle.check(UpdateInfo("message", user, -100, is_private=False), 42) == ALLOWED


async def test_who_is_patient_but_busy_is_never_throttled(clock: VirtualClock) -> None:
    rules = ThrottleRules()
    throttle = Throttle(rules, MemoryThrottle(rules, clock))
    for _ in range(300):
        assert await throttle.check(UpdateInfo("message", 1, 1, is_private=True), 42) == ALLOWED
        await clock.sleep(2)


async def test_a_spammer_hears_one_answer_and_then_nothing_during_the_pause(clock: VirtualClock) -> None:
    rules = ThrottleRules()
    throttle = Throttle(rules, MemoryThrottle(rules, clock))
    answers, passed = [], 0
    while clock.monotonic() < 600:
        verdict = await throttle.check(UpdateInfo("message", 1, 1, is_private=True), 42)
        passed += verdict == ALLOWED
        if isinstance(verdict, Throttled) and verdict.notify:
            answers.append(clock.monotonic())
        await clock.sleep(0.1)
    assert len(answers) == 2
    assert answers[1] - answers[0] > 300
    assert passed < 70
