"""What is written on the command line becomes the simulator's options, or one clear line."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.sim import options as sim_options
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.faults import parse_share
from tidegate.sim.telegram import Faults, Latency, Limits, World


def limits(bot_rate: str = "30/1", hidden_floods: str = "0") -> Limits:
    return sim_options.limits(
        bot_rate=bot_rate,
        chat_rate="1/1",
        chat_burst=25,
        group_rate="20/60",
        closes="chat",
        escalate=False,
        edits="shared",
        actions="separate",
        hidden_floods=hidden_floods,
    )


def faults(latency: str = "0", server_errors: str = "0", silent: str = "0") -> Faults:
    return sim_options.faults(
        latency=latency,
        server_errors=server_errors,
        lost_answers="0",
        lost_requests="0",
        silent=silent,
        malformed="0",
    )


def world(token: str) -> World:
    return sim_options.world([token], closed=False)


def test_defaults_of_the_command_are_those_of_the_simulator() -> None:
    assert limits() == Limits()
    assert faults() == Faults()


def test_latency_holds_each_way() -> None:
    asked = faults(latency="5-40")

    assert asked.latency_in == asked.latency_out == Latency(5, 40)


def test_rates_are_read() -> None:
    assert limits(bot_rate="100/2.5").bot == Rate(100, 2.5)


@pytest.mark.parametrize(
    ("make", "text", "told"),
    [
        (limits, "30/", "--bot-rate: '30/' is not a limit"),
        (limits, "0/1", "--bot-rate: '0/1' would never let a call pass"),
        (faults, "5-", "--latency: '5-' is not a latency"),
        (lambda text: limits(hidden_floods=text), "2", "--hidden-floods: '2' is not a share"),
        (lambda text: faults(server_errors=text), "1.5", "--server-errors: '1.5' is not a share"),
        (lambda text: faults(silent=text), "nan", "--silent: 'nan' is not a share"),
        (lambda text: faults(silent=text, server_errors=text), "0.6", "their sum at most 1"),
    ],
)
def test_what_cannot_be_names_its_option(make: Callable[[str], object], text: str, told: str) -> None:
    with pytest.raises(BadInputError, match="^.*" + told.replace("(", r"\(")):
        make(text)


def test_with_tokens_only_their_bots_exist() -> None:
    known = world("42:any")

    assert known.bot("42:any") is not None
    assert known.bot("43:any") is None


def test_a_bad_token_is_not_repeated() -> None:
    with pytest.raises(BadInputError, match="--token") as caught:
        world("hush-hush")

    assert "hush" not in str(caught.value)


def test_a_closed_world_knows_nobody() -> None:
    closed = sim_options.world([], closed=True)
    bot = closed.bot("42:any")

    assert bot is not None
    assert closed.chat(bot, 1001) is None


@given(st.floats(0, 1))
def test_every_share_from_0_to_1_is_one(number: float) -> None:
    assert parse_share(repr(number)) == number


@given(st.floats().filter(lambda number: not 0 <= number <= 1))
def test_no_other_number_is_a_share(number: float) -> None:
    with pytest.raises(BadInputError, match="from 0 to 1"):
        parse_share(repr(number))
