"""The outage tracker: tells a message that fails from a bot that cannot send. Pure: it is told the time.

A failure that may be Telegram's (5xx, a page that is not Telegram's) counts against a message only if another
call of its bot was answered since the message failed before. Otherwise it goes back uncounted; and when
several different messages have failed without an answer in between, the bot cannot send: that is an outage.
"""

import random
from typing import Final

import msgspec

from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.model import (
    LOST_ANSWERS,
    BotId,
    Dead,
    NotSent,
    Outcome,
    Probe,
    Retry,
    Unknown,
    Unreachable,
    shows_that_bot_sends,
)

LONGEST_OUTAGE_WAIT: Final = 15.0  # seconds: what waits should leave soon after the end of an outage
MOST_OUTAGE_DOUBLINGS: Final = 10
FAILURES_OF_AN_OUTAGE: Final = 5  # different messages in a row
LOST_ANSWERS_OF_AN_OUTAGE: Final = 3  # fewer: each may double a message
GIVE_WAY: Final = 20.0  # seconds for which a message that may have arrived lets another one be the probe
WORTH_TELLING: Final = 30.0  # seconds for which nothing was answered
SUSPECTS_KEPT: Final = 1_000  # messages of one bot
SUSPECTS_KEPT_FOR: Final = 3600.0  # seconds
NO_CONNECTION: Final = "no connection in time"


class _Suspect(msgspec.Struct):
    """A message that failed, and may do so again."""

    at: float  # its latest failure
    failures: int = 0
    lost: bool = False  # it may have arrived
    gave_way: float = -1.0


class _FailingBot(msgspec.Struct):
    """A bot of which some calls failed lately. `until` and `tries` are those of its outage, if it has one."""

    since: float  # the first failure in a row
    heard: float = 0.0  # the latest failure
    answered: float = -1.0
    sent: float = -1.0  # the latest probe that left
    reason: str = ""
    out: bool = False
    until: float = 0.0
    tries: int = 0
    # The messages that failed since the latest answer, and whether theirs were lost.
    row: dict[str, bool] = msgspec.field(default_factory=dict)
    suspects: dict[str, _Suspect] = msgspec.field(default_factory=dict)


class KnownOutage(msgspec.Struct, frozen=True):
    """An outage as a direct call is told of it. Seconds."""

    wait: float  # until a call is worth it
    lasted: float
    reason: str


class OutageTracker:
    """One per process. `limit`: seconds after which the messages of an outage die; None: they wait."""

    def __init__(self, policy: RetryBackoff, draw: random.Random, limit: float | None = None) -> None:
        self._policy = policy
        self._draw = draw
        self._limit = limit
        self._failing: dict[BotId, _FailingBot] = {}

    def note(
        self,
        bot: BotId,
        key: str,
        outcome: Outcome,
        now: float,
        *,
        probe: Probe | None = None,
        attempt: int = 1,
    ) -> Outcome:
        """Note how a call ended; `key` names its message. Returns the outcome that is to be settled."""
        if shows_that_bot_sends(outcome):
            self._answered(bot, key, now)
            return outcome
        if not isinstance(outcome, Retry | Unknown | Unreachable) and outcome != NotSent("late"):
            return outcome
        failing = self._failing_at(bot, now)
        known = failing.suspects.get(key)
        own = known is not None and known.at < failing.answered
        suspect = _suspect(failing, key, outcome, now)
        if isinstance(outcome, Retry) and own and not failing.out and probe is None:
            return Retry(self._policy.delay(attempt, self._draw), outcome.reason)
        if len(failing.row) < FAILURES_OF_AN_OUTAGE:
            failing.row[key] = isinstance(outcome, Unknown)
        failing.reason, failing.heard = _reason(outcome), now
        if not (failing.out or probe or _is_outage(failing, outcome)):
            return self._again(outcome, suspect)
        return self._held(failing, outcome, now, probe)

    def unanswered(self, bot: BotId, outcome: Outcome, now: float, probe: Probe | None) -> Outcome:
        """The call that asked first failed: the message was not sent, and its bot cannot send."""
        failing = self._failing_at(bot, now)
        failing.row.setdefault("", True)
        failing.reason, failing.heard = _reason(outcome), now
        return self._held(failing, Unreachable(0.0, failing.reason), now, probe)

    def _failing_at(self, bot: BotId, now: float) -> _FailingBot:
        failing = self._failing.get(bot)
        if failing is None:
            failing = self._failing[bot] = _FailingBot(now)
        elif not failing.row:
            failing.since = now
        return failing

    def _held(self, failing: _FailingBot, outcome: Outcome, now: float, probe: Probe | None) -> Outcome:
        if probe is not None:
            failing.since = min(failing.since, now - probe.lasted)
        failing.out = True
        if probe is not None or now >= failing.until:  # else it was under way when the wait began
            tries = max(failing.tries, probe.number if probe is not None else 0)
            doublings = min(tries, MOST_OUTAGE_DOUBLINGS)
            failing.until = now + min(LONGEST_OUTAGE_WAIT, self._policy.base_delay * 2.0**doublings)
            failing.tries = tries + 1
        wait, lasted = max(failing.until - now, 0.001), now - failing.since
        if isinstance(outcome, Unknown):
            return Unknown(outcome.reason, max(outcome.delay, wait + GIVE_WAY), wait)
        if probe is not None and self._limit is not None and probe.lasted >= self._limit:
            return Dead("outage", f"its bot could not send for {probe.lasted:.0f} s: {failing.reason}")
        return Unreachable(wait, failing.reason, lasted)

    def _again(self, outcome: Outcome, suspect: _Suspect) -> Outcome:
        """It is tried again by itself: a second message has to tell whether it is the bot."""
        if not isinstance(outcome, Retry):
            return outcome
        bound = min(LONGEST_OUTAGE_WAIT, self._policy.base_delay * 2.0 ** min(suspect.failures, 10))
        return Retry(self._draw.uniform(bound / 2, bound), outcome.reason, counted=False)

    def _answered(self, bot: BotId, key: str, now: float) -> None:
        failing = self._failing.get(bot)
        if failing is None:
            return
        failing.answered, failing.out, failing.tries, failing.until = now, False, 0, 0.0
        failing.row.clear()
        failing.suspects.pop(key, None)
        oldest = next(iter(failing.suspects.values()), None)
        while oldest is not None and oldest.at < now - SUSPECTS_KEPT_FOR:
            del failing.suspects[next(iter(failing.suspects))]
            oldest = next(iter(failing.suspects.values()), None)
        if not failing.suspects:
            del self._failing[bot]

    def known(self, bot: BotId, now: float) -> KnownOutage | None:
        """The outage that makes a direct call pointless now, if there is one."""
        failing = self._failing.get(bot)
        if failing is None or not failing.out or failing.until <= now:
            return None
        return KnownOutage(failing.until - now, now - failing.since, failing.reason)

    def asks_first(self, bot: BotId, key: str, probe: Probe | None) -> bool:
        """Return whether a harmless call should find out first whether answers come: it may be doubled."""
        if probe is not None and probe.obstacle == LOST_ANSWERS:
            return True
        return self._may_have_arrived(bot, key)

    def gives_way(self, bot: BotId, key: str, now: float) -> bool:
        """Return whether another message should be the probe, as this one may have arrived.

        Not if none was sent since it gave way the last time: then there is no other.
        """
        if not self._may_have_arrived(bot, key):
            return False
        failing = self._failing[bot]
        suspect = failing.suspects[key]
        if suspect.gave_way > failing.sent >= 0 or (failing.sent < 0 <= suspect.gave_way):
            return False
        suspect.gave_way = now
        return True

    def sends_probe(self, bot: BotId, now: float) -> None:
        failing = self._failing.get(bot)
        if failing is not None:
            failing.sent = now

    def _may_have_arrived(self, bot: BotId, key: str) -> bool:
        failing = self._failing.get(bot)
        suspect = failing.suspects.get(key) if failing is not None else None
        return failing is not None and suspect is not None and suspect.lost and suspect.at > failing.answered

    def words(self, now: float) -> list[str]:
        """The bots that cannot send, as far as this process has seen it lately."""
        return [
            f"bot {bot} cannot send ({failing.reason}) for {now - failing.since:.0f} s"
            for bot, failing in self._failing.items()
            if failing.row
            and now - failing.heard < 2 * LONGEST_OUTAGE_WAIT + WORTH_TELLING
            and (failing.out or now - failing.since >= WORTH_TELLING)
        ]


def _suspect(failing: _FailingBot, key: str, outcome: Outcome, now: float) -> _Suspect:
    """Note a failure of a message. The dictionary is ordered by the latest failure, and bounded."""
    suspect = failing.suspects.pop(key, None) or _Suspect(now)
    suspect.at, suspect.failures = now, suspect.failures + 1
    suspect.lost = suspect.lost or isinstance(outcome, Unknown)
    failing.suspects[key] = suspect
    if len(failing.suspects) > SUSPECTS_KEPT:
        del failing.suspects[next(iter(failing.suspects))]
    return suspect


def _is_outage(failing: _FailingBot, outcome: Outcome) -> bool:
    if isinstance(outcome, Unreachable):
        return True  # no message can be at fault
    lost = sum(failing.row.values())
    return lost >= LOST_ANSWERS_OF_AN_OUTAGE or len(failing.row) >= FAILURES_OF_AN_OUTAGE


def _reason(outcome: Outcome) -> str:
    match outcome:
        case Retry(reason=reason) | Unreachable(reason=reason) | Dead(reason=reason):
            return reason
        case Unknown():
            return LOST_ANSWERS
        case _:
            return NO_CONNECTION
