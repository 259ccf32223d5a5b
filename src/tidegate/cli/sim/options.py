"""The simulator's limits, faults and world, from the options of the command line."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.faults import parse_share
from tidegate.sim.telegram import Faults, Latency, Limits, World

Value = TypeVar("Value")
Budget = Literal["shared", "separate"]


def limits(
    *,
    bot_rate: str,
    chat_rate: str,
    chat_burst: int,
    group_rate: str,
    closes: Literal["nothing", "chat", "bot"],
    escalate: bool,
    edits: Budget,
    actions: Budget,
    hidden_floods: str,
) -> Limits:
    return Limits(
        bot=read("--bot-rate", Rate.parse, bot_rate),
        private=read("--chat-rate", Rate.parse, chat_rate),
        burst=chat_burst,
        group=read("--group-rate", Rate.parse, group_rate),
        closes=closes,
        escalates=escalate,
        edit_budget=edits,
        action_budget=actions,
        hidden_floods=read("--hidden-floods", parse_share, hidden_floods),
    )


def faults(
    *, latency: str, server_errors: str, lost_answers: str, lost_requests: str, silent: str, malformed: str
) -> Faults:
    each_way = read("--latency", Latency.parse, latency)
    return Faults(
        latency_in=each_way,
        latency_out=each_way,
        server_error=read("--server-errors", parse_share, server_errors),
        lost_answer=read("--lost-answers", parse_share, lost_answers),
        lost_request=read("--lost-requests", parse_share, lost_requests),
        silent=read("--silent", parse_share, silent),
        malformed=read("--malformed", parse_share, malformed),
    )


def world(tokens: Sequence[str], *, closed: bool) -> World:
    """Return a world; with tokens, only their bots exist. A bad token is not repeated: it may be real."""
    for token in tokens:
        if World().bot(token) is None:
            raise BadInputError("--token: that is not a bot's token: write number:text, such as 42:any")
    return World(tokens=set(tokens) or None, open_world=not closed)


def read(option: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parse the text of an option. Errors name the option."""
    try:
        return parse(text)
    except BadInputError as error:
        raise BadInputError(f"{option}: {error}") from error
