"""The outcome policy: judges an answer, or its absence. Pure: the worker acts on the outcome.

Most errors differ by their descriptions only. The texts are those of the Bot API server
(github.com/tdlib/telegram-bot-api, Client.cpp) and the upper-case codes of the servers behind it, which
it passes on as they are.
"""

import random
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.model import (
    MAX_ATTEMPTS,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.scrubber import scrub_secrets

# A 429 always names its wait. If one does not: Telegram's short refusals are about 5 s, and calling again
# sooner makes them grow.
ASSUMED_WAIT: Final = 5.0
SHORTEST_WAIT: Final = 1.0  # 0 would spin
# Seconds. Telegram's waits are minutes, and hours for a bot that goes on calling. One call an hour finds out
# whether a longer one is meant, and costs nothing if it is.
LONGEST_CLOSURE: Final = 3600.0
MOST_DOUBLINGS: Final = 60
RESEND_FACTOR: Final = 10.0  # how much longer than after a failure the first wait after a lost answer is

_FLOOD = re.compile(r"too many requests|flood_wait|slowmode_wait")
_WAIT = re.compile(r"(?:retry after |_wait_)(\d{1,9})")
_NOT_MODIFIED = re.compile(r"not[ _]modified")
_NOT_TRIED: Final = frozenset(("late", "uploading"))
_CONFLICT: Final = "conflict"
_MOST_SECONDS: Final = 10**9
_INT64 = range(-(2**63), 2**63)
_SUCCESS = range(200, 300)
_ERRORS = range(400, 600)


class RetryBackoff(msgspec.Struct, frozen=True):
    """How long to wait before another attempt, in seconds, and how many there are at most."""

    base_delay: float = 1.0
    max_delay: float = 60.0
    longest_closure: float = LONGEST_CLOSURE  # a 429 that asks for more is tried again after this
    max_attempts: int = MAX_ATTEMPTS  # of a message that has none of its own

    def delay(self, attempt: int, draw: random.Random) -> float:
        """Full jitter: anywhere between 0 and a bound that doubles with each attempt."""
        return draw.uniform(0.0, self._bound(self.base_delay, attempt))

    def resend_delay(self, attempt: int, draw: random.Random) -> float:
        """After a lost answer: in the upper half of a longer bound. The message may have arrived."""
        bound = self._bound(RESEND_FACTOR * self.base_delay, attempt)
        return draw.uniform(bound / 2, bound)

    def _bound(self, first: float, attempt: int) -> float:
        doublings = min(max(attempt - 1, 0), MOST_DOUBLINGS)
        return min(self.max_delay, first * 2.0**doublings)


class _Verdict(NamedTuple):
    text: re.Pattern[str]
    reason: str
    whole_chat: bool


def _verdict(text: str, reason: str, *, whole_chat: bool = True) -> _Verdict:
    return _Verdict(re.compile(text), reason, whole_chat)


# The first match counts. Some come as 400 or as 403, depending on which server noticed.
_VERDICTS: Final = (
    _verdict(r"bot was blocked by the user|user_is_blocked|you_blocked_user", "blocked"),
    _verdict(r"user is deactivated|user_deactivated", "deactivated"),
    _verdict(r"bot was kicked|bot is not a member|channel_private", "kicked"),
    _verdict(r"chat was deleted|chat was deactivated|chat was upgraded to a supergroup", "not_found"),
    _verdict(r"chat not found|user not found|peer_id_invalid|chat_id_invalid|channel_invalid", "not_found"),
    _verdict(r"user_id_invalid|input_user_invalid", "not_found", whole_chat=False),
    _verdict(r"bot can't initiate conversation|bot can't send messages to", "forbidden"),
    _verdict(r"have no rights to send a message|chat_write_forbidden|chat_restricted", "forbidden"),
    _verdict(r"need administrator rights in the channel", "forbidden"),
    # One kind of message is not allowed in this chat; others may be.
    _verdict(r"not enough rights|chat_admin_required|chat_send_\w+_forbidden", "forbidden", whole_chat=False),
    _verdict(r"voice_messages_forbidden|topic_closed", "forbidden", whole_chat=False),
)
_SURELY_THE_RECIPIENT: Final = frozenset(("blocked", "deactivated"))
_DEAD_BY_CODE: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.NOT_FOUND: "not_found_method",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
}
# These name a second chat or user beside their own chat, and the text does not say which is meant.
_NAMES_ANOTHER = re.compile(
    r"(?:forward|copy)message|chatmember|chatsenderchat|joinrequest|chatadministrator"
)


def judge(  # noqa: PLR0911  (one a kind of answer)
    answer: ApiAnswer | NoAnswer,
    *,
    attempt: int,
    policy: RetryBackoff,
    draw: random.Random,
    method: str = "",
) -> Outcome:
    """Judge an answer. Never raises.

    With `method` given, a call that names a second chat (a forward) never counts against its own chat: the
    other one may be at fault.
    """
    if isinstance(answer, NoAnswer):
        if answer.left:
            return Unknown(answer.reason, policy.resend_delay(attempt, draw))
        # A call that was never tried goes back uncounted. An outage is not the fault of any message.
        if answer.reason in _NOT_TRIED:
            return NotSent(answer.reason, answer.wait)
        return Unreachable(policy.base_delay, answer.reason)
    body = answer.body or {}
    if body.get("ok") is True and answer.status in _SUCCESS:
        return Delivered(body.get("result"))
    error = _Error(answer.status, body)
    if (wait := error.wait()) is not None:
        return Refused(min(wait, policy.longest_closure))
    if error.code in _SUCCESS:
        return Unknown("malformed", policy.resend_delay(attempt, draw))  # it may have happened
    if (reason := error.passing()) is not None:
        return Retry(policy.delay(attempt, draw), reason, counted=reason == _CONFLICT)
    return _final(error, method)


class _Error:
    """An error answer; `is_telegrams`: it has Telegram's form."""

    __slots__ = ("code", "description", "is_telegrams", "parameters", "text")

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        code, description, parameters = (body.get(k) for k in ("error_code", "description", "parameters"))
        self.code = status
        if status in _SUCCESS and isinstance(code, int) and code in _ERRORS:
            self.code = code
        self.is_telegrams = body.get("ok") is False and self.code in _ERRORS
        # A proxy may quote the address of the call, which holds the token.
        self.description = scrub_secrets(description) if isinstance(description, str) else ""
        self.text = self.description.lower().replace("’", "'")  # noqa: RUF001  (both are seen)
        self.parameters: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}

    def passing(self) -> str | None:
        """A word for an error that may pass by itself. All but a conflict may be Telegram's as a whole."""
        if self.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return None
        if self.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "server_error"
        if self.code == HTTPStatus.CONFLICT:
            return _CONFLICT
        # The page of a proxy or portal in front of Telegram: its 403 does not come from Telegram.
        return None if self.is_telegrams else "not_telegram"

    def new_chat(self) -> int | None:
        chat_id = self.parameters.get("migrate_to_chat_id")
        if not isinstance(chat_id, int) or isinstance(chat_id, bool) or chat_id not in _INT64:
            return None
        return chat_id or None

    def wait(self) -> float | None:
        """Seconds for which Telegram refuses calls, if it does. An album's refusal hides in a 400."""
        wait = self.parameters.get("retry_after")
        if isinstance(wait, int | float) and not isinstance(wait, bool):
            # In this order a NaN becomes the shortest, and a huge integer is never converted to a float.
            return float(min(_MOST_SECONDS, max(SHORTEST_WAIT, wait)))
        if self.code != HTTPStatus.TOO_MANY_REQUESTS and not _FLOOD.search(self.text):
            return None
        match = _WAIT.search(self.text)
        return max(SHORTEST_WAIT, float(match[1])) if match else ASSUMED_WAIT


def _final(error: _Error, method: str) -> Outcome:
    """The outcome of an error that another attempt would not change."""
    if (chat_id := error.new_chat()) is not None:
        return Migrated(chat_id)
    if _NOT_MODIFIED.search(error.text):
        # The message already is as the edit wants it: that is no failure. The message is not in the answer;
        # True is what Telegram returns where it has no message to return.
        return Delivered(True)  # noqa: FBT003
    return _dead(error, method)


def _dead(error: _Error, method: str) -> Dead:
    # A 401 is the token's fault, not the chat's.
    if (reason := _DEAD_BY_CODE.get(error.code)) is not None:
        return Dead(reason, error.description)
    for text, reason, whole_chat in _VERDICTS:
        if text.search(error.text):
            sure = reason in _SURELY_THE_RECIPIENT or not _NAMES_ANOTHER.search(method.lower())
            if not sure:
                break  # the other chat may be meant
            return Dead(reason, error.description, whole_chat=whole_chat)
    return Dead("forbidden" if error.code == HTTPStatus.FORBIDDEN else "bad_request", error.description)
