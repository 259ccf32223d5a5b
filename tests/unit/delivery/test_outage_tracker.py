"""A message that alone fails is told from a bot that cannot send."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.delivery.outage_tracker import (
    FAILURES_OF_AN_OUTAGE,
    LONGEST_OUTAGE_WAIT,
    LOST_ANSWERS_OF_AN_OUTAGE,
    NO_CONNECTION,
    SUSPECTS_KEPT,
    WORTH_TELLING,
    OutageTracker,
)
from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.model import (
    LOST_ANSWERS,
    BotId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Probe,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)

BOT = BotId(42)
SERVER_ERROR = Retry(1.0, "server_error", counted=False)
LOST = Unknown("timeout", 1.0)
SENT = Delivered({})


def tracker(limit: float | None = None) -> OutageTracker:
    return OutageTracker(RetryBackoff(), random.Random(1), limit)


def test_a_message_that_alone_draws_5xx_is_counted_as_often_as_others_pass() -> None:
    outages, counted = tracker(), 0
    for now in range(20):
        outcome = outages.note(BOT, "poison", SERVER_ERROR, now)
        assert isinstance(outcome, Retry)
        counted += outcome.counted
        outages.note(BOT, f"fine {now}", SENT, now + 0.5)
    assert counted == 19  # all but the first, which may have been an outage


def test_a_message_that_alone_draws_5xx_in_a_quiet_bot_holds_up_nobody_and_backs_off() -> None:
    outages, now = tracker(), 0.0
    for _ in range(100):
        outcome = outages.note(BOT, "poison", SERVER_ERROR, now)
        assert isinstance(outcome, Retry)
        assert not outcome.counted
        now += outcome.delay
    assert now > 100 * LONGEST_OUTAGE_WAIT / 3
    assert outages.known(BOT, now) is None


def test_several_messages_that_fail_in_a_row_are_an_outage() -> None:
    outages = tracker()
    outcomes = [outages.note(BOT, f"m{i}", SERVER_ERROR, i / 30) for i in range(FAILURES_OF_AN_OUTAGE)]

    assert [type(outcome) for outcome in outcomes] == [Retry] * (FAILURES_OF_AN_OUTAGE - 1) + [Unreachable]
    assert outages.known(BOT, 0.2) is not None


def test_several_lost_answers_in_a_row_are_an_outage() -> None:
    outages = tracker()
    waits = [outages.note(BOT, f"m{i}", LOST, i) for i in range(LOST_ANSWERS_OF_AN_OUTAGE)]

    assert [isinstance(one, Unknown) and one.wait > 0 for one in waits] == [False, False, True]


def test_calls_that_never_get_a_connection_are_an_outage() -> None:
    outages = tracker()
    outcomes = [outages.note(BOT, f"m{i}", NotSent("late"), i) for i in range(FAILURES_OF_AN_OUTAGE)]

    assert outcomes[0] == NotSent("late")
    assert isinstance(outcomes[-1], Unreachable)
    assert outcomes[-1].reason == NO_CONNECTION


def test_no_connection_is_an_outage_at_once() -> None:
    assert tracker().note(BOT, "m", Unreachable(1.0, "connect"), 0) == Unreachable(1.0, "connect")


@pytest.mark.parametrize("failure", [SERVER_ERROR, Unreachable(1.0, "connect"), NotSent("late")])
def test_a_probe_that_fails_makes_the_next_wait_longer_in_whatever_process(failure: Outcome) -> None:
    waits = []
    for number in range(1, 8):
        outcome = tracker().note(BOT, "m", failure, 100.0, probe=Probe(number, "x", 60.0))
        assert isinstance(outcome, Unreachable)
        waits.append(outcome.wait)
        assert outcome.lasted == 60
    assert waits == [2, 4, 8, 15, 15, 15, 15]


def test_calls_that_were_under_way_do_not_make_the_wait_longer() -> None:
    outages = tracker()
    outages.note(BOT, "m1", Unreachable(1.0, "connect"), 0.0)

    assert outages.note(BOT, "m2", Unreachable(1.0, "connect"), 0.4) == Unreachable(0.6, "connect", 0.4)


@pytest.mark.parametrize(
    "answer", [SENT, Refused(5), Migrated(-9), Dead("blocked", ""), Retry(1.0, "conflict")]
)
def test_any_answer_of_telegram_ends_an_outage(answer: Outcome) -> None:
    outages = tracker()
    outages.note(BOT, "m", Unreachable(1.0, "connect"), 0)

    assert outages.note(BOT, "m", answer, 5) == answer

    assert outages.known(BOT, 5) is None
    assert outages.words(5) == []


@pytest.mark.parametrize("outcome", [NotSent("interrupted"), Dead("bad_input", ""), Dead("unauthorized", "")])
def test_what_was_not_answered_ends_no_outage(outcome: Outcome) -> None:
    outages = tracker()
    outages.note(BOT, "m", Unreachable(1.0, "connect"), 0)

    outages.note(BOT, "n", outcome, 0.5)

    assert outages.known(BOT, 0.6) is not None


def test_an_outage_is_told_in_words_until_nothing_is_known_of_it_any_more() -> None:
    outages = tracker()
    outages.note(BOT, "m", Unreachable(1.0, "dns"), 0)

    assert outages.words(34) == ["bot 42 cannot send (dns) for 34 s"]
    assert outages.words(600) == []  # another process may have ended it


def test_one_message_that_fails_for_long_is_told_in_words_too() -> None:
    outages = tracker()
    outages.note(BOT, "m", SERVER_ERROR, 0)
    assert outages.words(1) == []

    outages.note(BOT, "m", SERVER_ERROR, WORTH_TELLING)

    assert outages.words(WORTH_TELLING) == ["bot 42 cannot send (server_error) for 30 s"]


def test_a_message_that_may_have_arrived_is_not_sent_again_before_an_answer_comes() -> None:
    outages = tracker()
    assert not outages.asks_first(BOT, "m", None)
    outages.note(BOT, "m", LOST, 0)
    assert outages.asks_first(BOT, "m", None)

    outages.note(BOT, "n", SENT, 1)

    assert not outages.asks_first(BOT, "m", None)
    assert outages.asks_first(BOT, "m", Probe(1, LOST_ANSWERS, 5.0))


def test_a_message_that_may_have_arrived_lets_another_be_the_probe_if_there_is_one() -> None:
    outages = tracker()
    outages.note(BOT, "m", LOST, 0)

    assert outages.gives_way(BOT, "m", 10)
    assert not outages.gives_way(BOT, "m", 30)  # no other was sent meanwhile
    assert not outages.gives_way(BOT, "fresh", 30)
    outages.sends_probe(BOT, 31)
    assert outages.gives_way(BOT, "m", 50)


def test_after_the_longest_outage_a_message_dies_if_that_is_set() -> None:
    long, short = Probe(9, "dns", 86_400.0), Probe(8, "dns", 86_399.0)
    failure = Unreachable(1.0, "dns")

    assert isinstance(tracker().note(BOT, "m", failure, 0, probe=long), Unreachable)
    assert isinstance(tracker(86_400).note(BOT, "m", failure, 0, probe=short), Unreachable)
    dead = tracker(86_400).note(BOT, "m", failure, 0, probe=long)
    assert isinstance(dead, Dead)
    assert dead.reason == "outage"


def test_what_failed_is_forgotten_in_the_end() -> None:
    outages = tracker()
    for i in range(2 * SUSPECTS_KEPT):
        outages.note(BOT, f"m{i}", LOST, i)
    assert len(outages._failing[BOT].suspects) == SUSPECTS_KEPT  # noqa: SLF001
    assert len(outages._failing[BOT].row) <= FAILURES_OF_AN_OUTAGE  # noqa: SLF001

    outages.note(BOT, "x", SENT, 1e6)

    assert outages._failing == {}  # noqa: SLF001


FAILURES = st.sampled_from([SERVER_ERROR, LOST, NotSent("late"), Unreachable(1.0, "connect")])


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.none() | FAILURES), max_size=60))
def test_an_attempt_is_counted_only_if_another_call_was_answered_since_the_failure_before(
    calls: list[tuple[str, Outcome | None]],
) -> None:
    failed: dict[str, int] = {}
    outages, answered = tracker(), -1
    for now, (key, failure) in enumerate(calls):
        outcome = outages.note(BOT, key, failure or SENT, now)
        if failure is None:
            answered = now
            failed.pop(key, None)
            continue
        if isinstance(outcome, Retry) and outcome.counted:
            assert failed[key] < answered
        failed[key] = now
    for key in "abcdefg":
        outages.note(BOT, key, SENT, len(calls))
    assert outages._failing == {}  # noqa: SLF001
