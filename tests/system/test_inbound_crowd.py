"""The crowd that measures a bot: it sees what goes wrong, and nothing does with a gate."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from system.inbound_crowd import TOKEN, Gathering, Scene, judge
from system.inbound_echo import run_really, run_virtually
from tidegate.sim import virtual_time
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock

Answers = Callable[[int], list[int]]  # a number that was said → the numbers that are repeated


def crowd_before(answers: Answers, scene: Scene) -> dict[str, Any]:
    """Report on a bot without a library or limits, which repeats what `answers` gives."""

    async def main(clock: VirtualClock) -> dict[str, Any]:
        telegram = SimulatedTelegram(clock)
        bot = telegram.world.bot(TOKEN)
        assert bot is not None

        async def answer() -> None:
            while True:
                for update in bot.updates.first(100):
                    chat = telegram.world.chat(bot, update["message"]["chat"]["id"])
                    assert chat is not None
                    for number in answers(int(update["message"]["text"].split()[1])):
                        chat.notify({"text": f"echo {number}"})
                    bot.updates.confirm(update["update_id"])
                await clock.sleep(0.01)

        crowd, answering = Gathering(telegram, scene), asyncio.create_task(answer())
        await crowd.live()
        answering.cancel()
        return judge(crowd.report())

    return virtual_time.run(main)


@pytest.mark.parametrize(
    ("answers", "flaw"),
    [
        (lambda number: [number] if number != 2 else [], "lost"),
        (lambda number: [number, number], "doubled"),
        (lambda number: [number, number - 1] if number % 2 == 0 else [], "out_of_order"),
    ],
)
def test_a_bot_that_errs_is_found_out(answers: Answers, flaw: str) -> None:
    found = crowd_before(answers, Scene(users=5, seconds=30))
    assert found[flaw] > 0
    assert not found["passed"]


def test_a_bot_that_does_not_err_passes() -> None:
    found = crowd_before(lambda number: [number], Scene(users=5, seconds=30))
    assert found["sent"] == found["answered"] >= 25
    assert found["passed"]


def test_a_spammer_is_told_once_and_the_others_are_answered() -> None:
    found = run_virtually(Scene(users=20, seconds=90, every=4, spammer=20))
    assert found["spammer_sent"] > 800
    assert found["spammer_echoes"] < 70
    assert (found["friendly_answers"], found["friendly_per_window"]) == (1, 1)
    assert (found["lost"], found["out_of_order"], found["doubled"], found["refused"]) == (0, 0, 0, 0)
    assert found["p50_ms_with_spammer"] < 2 * found["p50_ms_without_spammer"]


async def test_everybody_is_answered_in_order_over_http(tmp_path: Path) -> None:
    found = await run_really(Scene(users=30, seconds=2, every=1), tmp_path)
    flaws = ("lost", "out_of_order", "doubled", "refused", "waiting")
    assert [found[flaw] for flaw in flaws] == [0] * len(flaws)
    assert found["answered"] > 30


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("users", [500, 2_000])
def test_ten_virtual_minutes_of_a_crowd(users: int) -> None:
    found = run_virtually(Scene(users=users, seconds=600, every=30 if users == 500 else 60))
    print(found)  # noqa: T201  (the figures of a proof)
    assert (found["lost"], found["out_of_order"], found["doubled"], found["refused"]) == (0, 0, 0, 0)
    assert found["passed"]
