"""The retry decision, a pure function: retries, lockouts, complaints."""

import random
from time import tzset

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.clock import Clock
from tidegate.sim.virtual_time import EPOCH
from tidegate.upstream.retry import (
    IDEMPOTENT,
    LONGEST_COMPLAINT,
    UpstreamAttempts,
    UpstreamGarbled,
    UpstreamOk,
    UpstreamRefused,
    UpstreamRetry,
    UpstreamRetryPolicy,
    UpstreamUnknown,
    UpstreamVerdict,
    complaint,
    judge,
    lockout_of,
)
from tidegate.upstream.transport import NoResponse, UpstreamResponse

POLICY = UpstreamRetryPolicy(attempts=3, refusals=2)
outcomes = st.one_of(
    st.builds(UpstreamResponse, st.integers(200, 599), st.just({}), st.binary(max_size=40)),
    st.builds(NoResponse, st.booleans(), st.sampled_from(["timeout", "connect", "disconnected"])),
)
methods = st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"])


def run_of(method: str, told: list[UpstreamResponse | NoResponse]) -> list[UpstreamVerdict]:
    tries, verdicts = UpstreamAttempts(), list[UpstreamVerdict]()
    for outcome in told:
        tries = tries.after(outcome, method)
        verdicts.append(
            judge(
                outcome,
                method=method,
                idempotent=method in IDEMPOTENT,
                tries=tries,
                policy=POLICY,
                draw=random.Random(0),
            )
        )
        if not isinstance(verdicts[-1], UpstreamRetry):
            break
    return verdicts


@given(methods, st.lists(outcomes, min_size=6, max_size=6))
def test_whatever_is_answered_it_ends_within_the_attempts_and_refusals(
    method: str, told: list[UpstreamResponse | NoResponse]
) -> None:
    verdicts = run_of(method, told)
    assert not isinstance(verdicts[-1], UpstreamRetry)
    assert len(verdicts) <= POLICY.attempts + POLICY.refusals + 1


@given(st.sampled_from(["POST", "PATCH"]), st.lists(outcomes, min_size=6, max_size=6))
def test_what_is_not_idempotent_is_never_repeated_after_it_may_have_happened(
    method: str, told: list[UpstreamResponse | NoResponse]
) -> None:
    for outcome, verdict in zip(told, run_of(method, told), strict=False):
        if isinstance(verdict, UpstreamRetry):
            assert outcome.status == 429 if isinstance(outcome, UpstreamResponse) else not outcome.left


@given(outcomes)
def test_only_2xx_is_good(outcome: UpstreamResponse | NoResponse) -> None:
    good = isinstance(run_of("GET", [outcome])[0], UpstreamOk)
    assert good == (isinstance(outcome, UpstreamResponse) and 200 <= outcome.status < 300)


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308])
def test_a_redirect_is_no_success(status: int) -> None:
    (verdict,) = run_of(
        "PATCH", [UpstreamResponse(status, {"location": "https://secret.example/"}, b"moved")]
    )
    assert isinstance(verdict, UpstreamRefused)
    assert "https://" in verdict.text
    assert "secret" not in verdict.text


def test_an_interim_answer_is_no_answer() -> None:
    assert isinstance(run_of("POST", [UpstreamResponse(101, {}, b"")])[0], UpstreamGarbled)


@pytest.mark.parametrize("status", [408, 425, 500, 503, 520, 522, 524, 529, 599])
def test_what_a_proxy_says_in_its_own_numbers_passes_too(status: int) -> None:
    answer = UpstreamResponse(status, {}, b"")
    assert isinstance(run_of("GET", [answer])[0], UpstreamRetry)
    assert isinstance(run_of("POST", [answer])[0], UpstreamUnknown)


@pytest.mark.parametrize("status", [501, 505])
def test_what_a_server_cannot_do_is_not_asked_again(status: int) -> None:
    assert isinstance(run_of("GET", [UpstreamResponse(status, {}, b"")])[0], UpstreamRefused)


@pytest.mark.parametrize("end", [[429, 429, 429], [400], [403], [404], [302]])
def test_after_an_attempt_without_an_answer_a_refusal_does_not_mean_that_nothing_happened(
    end: list[int],
) -> None:
    told: list[UpstreamResponse | NoResponse] = [NoResponse(left=True, reason="timeout")]
    verdicts = run_of("PUT", [*told, *(UpstreamResponse(status, {}, b"") for status in end)])
    assert isinstance(verdicts[-1], UpstreamUnknown)


@pytest.mark.parametrize("status", [404, 410])
def test_a_deletion_whose_answer_was_lost_says_that_it_may_have_been_the_one(status: int) -> None:
    lost = NoResponse(left=True, reason="timeout")
    *_, verdict = run_of("DELETE", [lost, UpstreamResponse(status, {}, b"gone")])
    assert isinstance(verdict, UpstreamRefused)
    assert (verdict.status, "may have deleted it" in verdict.text) == (status, True)


def test_a_429_backs_off_by_itself_where_the_api_names_no_time() -> None:
    draw, tries = random.Random(1), UpstreamAttempts(refusals=6)
    pauses = [
        judge(
            UpstreamResponse(429, {}, b""),
            method="GET",
            idempotent=True,
            tries=tries,
            policy=patient,
            draw=draw,
        )
        for patient in [UpstreamRetryPolicy()] * 20
    ]
    delays = [pause.delay for pause in pauses if isinstance(pause, UpstreamRetry)]
    assert len(set(delays)) == 20
    assert max(delays) > 8


def test_a_page_of_letters_is_read_in_a_moment() -> None:
    began = Clock().monotonic()
    complaint(UpstreamResponse(400, {}, b"a" * 16_384))
    assert Clock().monotonic() - began < 0.5  # it took seconds


def test_a_date_without_a_zone_is_not_of_the_zone_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    tzset()
    try:
        headers = {"retry-after": "Mon Jan  5 09:00:42 2026"}
        assert lockout_of(UpstreamResponse(429, headers, b""), lockout=5.0, now=EPOCH) == pytest.approx(42.0)
    finally:
        monkeypatch.undo()
        tzset()


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_a_pause_is_anywhere_below_a_bound_that_doubles(attempt: int, seed: int) -> None:
    delay = POLICY.delay(attempt, random.Random(seed))
    assert 0 <= delay <= min(POLICY.max_delay, POLICY.base_delay * 2.0 ** (attempt - 1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-5", 0.0),
        ("1.5", 1.5),
        ("99999999999", 3600.0),
        ("1e400", 3600.0),
        ("Mon, 05 Jan 2026 09:00:42 GMT", 42.0),
        ("Monday, 05-Jan-26 09:00:42 GMT", 42.0),  # the old forms of a date that the RFC still has
        ("Mon Jan  5 09:00:42 2026", 42.0),
        ("Mon, 05 Jan 2026 08:00:00 GMT", 0.0),
        ("", 30.0),
        ("nan", 30.0),
        ("in a minute", 30.0),
        ("9" * 9000, 3600.0),
    ],
)
def test_retry_after_is_read_as_the_rfc_has_it(text: str, seconds: float) -> None:
    response = UpstreamResponse(429, {"retry-after": text}, b"")
    assert lockout_of(response, lockout=30.0, now=EPOCH) == pytest.approx(seconds)


def test_a_date_is_of_the_servers_clock_where_that_is_told() -> None:
    headers = {"retry-after": "Mon, 05 Jan 2026 09:10:30 GMT", "date": "Mon, 05 Jan 2026 09:10:00 GMT"}
    assert lockout_of(UpstreamResponse(429, headers, b""), lockout=5.0, now=EPOCH) == 30.0


@given(st.text(max_size=80))
def test_no_retry_after_closes_for_more_than_an_hour_or_raises(text: str) -> None:
    seconds = lockout_of(UpstreamResponse(429, {"retry-after": text}, b""), lockout=30.0, now=EPOCH)
    assert seconds is not None
    assert 0 <= seconds <= 3600


@pytest.mark.parametrize("status", [200, 404, 500, 502])
def test_other_answers_close_nothing(status: int) -> None:
    assert lockout_of(UpstreamResponse(status, {"retry-after": "9"}, b""), lockout=30.0, now=EPOCH) is None
    assert lockout_of(UpstreamResponse(503, {}, b""), lockout=30.0, now=EPOCH) is None
    assert lockout_of(NoResponse(left=True, reason="timeout"), lockout=30.0, now=EPOCH) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            b'{"error":"TABLE_NOT_FOUND","message":"Table \'m1\' not found"}',
            "TABLE_NOT_FOUND: Table 'm1' not found",
        ),
        (b'{"msg":"Invalid token"}', "Invalid token"),
        (b'{"msg":7}', "no reason given"),
        (b"", "no reason given"),
        (b"<html>\r\n\x1b[31mBad\x00 gateway", "<html> [31mBad gateway"),
        (b'{"msg":"xc-token 3xQ9-abcdefABCDEF_0123456789xyz is bad"}', "xc-token … is bad"),
        (b"Cannot GET /api/v2/tables/mfaob33z2nnrxve/recs", "Cannot GET /api/v2/tables/mfaob33z2nnrxve/recs"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_a_complaint_is_in_the_apis_own_words_without_what_may_be_secret(body: bytes, text: str) -> None:
    assert complaint(UpstreamResponse(400, {}, body)) == text


@given(st.binary() | st.text().map(lambda text: msgspec.json.encode({"msg": text})))
def test_a_complaint_is_short_and_printable(body: bytes) -> None:
    said = complaint(UpstreamResponse(400, {}, body))
    assert 0 < len(said) <= LONGEST_COMPLAINT
    assert said.isprintable()
