"""The crowd of the label bot: what it counts, and how a run is judged."""

import asyncio
from typing import Any

import pytest

from system.label_crowd import TOKEN, LabelCrowd, LabelScene, judge_labels
from tidegate.sim import virtual_time
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.entities import Json
from tidegate.sim.virtual_time import VirtualClock

SCENE = LabelScene(users=5, seconds=60, every=5, orders=0.5)
GOOD = {
    **dict.fromkeys(("unanswered", "late", "timeouts", "surplus", "refused"), 0),
    "answered": 10,
    "labels_ordered": 3,
    "labels_delivered": 3,
    "loop_p99_ms": 5.0,
    "loop_max_ms": 20.0,
    "rss_mb": [200.0, 210.0, 211.0, 212.0, 212.0],
}


def crowd_before(label: list[Json], pause: float = 0.01) -> dict[str, Any]:
    """Report on a bot without a library, which answers after `pause` seconds and sends these labels."""

    async def main(clock: VirtualClock) -> dict[str, Any]:
        telegram = SimulatedTelegram(clock)
        bot = telegram.world.bot(TOKEN)
        assert bot is not None

        async def answer() -> None:
            while True:
                await clock.sleep(pause)
                for update in bot.updates.first(100):
                    chat = telegram.world.chat(bot, update["message"]["chat"]["id"])
                    assert chat is not None
                    order = f"{update['update_id']:08}"
                    is_order = update["message"]["text"].startswith("/order ")
                    chat.notify({"text": f"Order {order} taken" if is_order else "I know /order"})
                    for one in label if is_order else []:
                        chat.notify(one | {"caption": f"The label of order {order}."})
                    bot.updates.confirm(update["update_id"])

        crowd, answering = LabelCrowd(telegram, SCENE), asyncio.create_task(answer())
        await crowd.live()
        answering.cancel()
        return crowd.report()

    return virtual_time.run(main)


def test_a_bot_that_does_all_is_counted_so() -> None:
    found = crowd_before([{"document": {}}])
    assert found["sent"] == found["answered"] > 30
    assert found["labels_delivered"] == found["labels_ordered"] > 10
    assert (found["late"], found["surplus"], found["unanswered"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("labels", "pause", "flaw"),
    [
        ([], 0.01, "labels_delivered"),
        ([{"document": {}}] * 2, 0.01, "surplus"),
        ([{"document": {}}], 3.0, "late"),
    ],
)
def test_a_bot_that_errs_is_found_out(labels: list[Json], pause: float, flaw: str) -> None:
    report = crowd_before(labels, pause)
    judged = judge_labels(GOOD | report | {name: GOOD[name] for name in ("loop_p99_ms", "rss_mb")})
    assert flaw in judged["failed"]
    assert not judged["passed"]


@pytest.mark.parametrize(
    "flaw",
    [{"loop_p99_ms": 50.0}, {"loop_max_ms": 100.0}, {"refused": 1}, {"timeouts": 1}, {"answered": 0}],
)
def test_a_run_with_a_flaw_does_not_pass(flaw: dict[str, float]) -> None:
    assert judge_labels(GOOD)["passed"]
    assert judge_labels(GOOD | flaw)["failed"] == list(flaw)


def test_memory_that_grows_after_the_first_quarter_does_not_pass() -> None:
    assert judge_labels(GOOD | {"rss_mb": [100.0, 210.0, 220.0, 230.0, 240.0]})["failed"] == [
        "growth_percent"
    ]


def test_the_work_of_labels_leaves_room_for_the_rest() -> None:
    scenes = [LabelScene(users=users, seconds=180) for users in (100, 500, 2_000)]
    assert [scene.work for scene in scenes] == [2.0, 1.0, 0.25]
