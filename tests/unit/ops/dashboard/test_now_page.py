"""The first page: what is not well, in words."""

import msgspec
import pytest

from tidegate.model import BotId, Rate
from tidegate.ops.dashboard.activity import BotState, SystemState
from tidegate.ops.dashboard.now_page import troubles
from tidegate.outbox.port import OutboxStats, StoreHealth
from unit.ops.api.service import BOT, Service


def held_bot(obstacle: str, waiting: int = 0) -> SystemState:
    limit = Rate(30, 1)
    bot = BotState(
        bot=BotId(BOT),
        counts=OutboxStats(normal=waiting),
        sends=0.0,
        refused=0.0,
        nominal=limit,
        allowed=limit,
        obstacle=obstacle,
    )
    sick = StoreHealth().with_problems([f"bot {BOT} cannot send ({obstacle}) for 4 s"])
    return SystemState(at=0.0, store="sqlite", bots=(bot,), stats=bot.counts, health=sick)


@pytest.mark.parametrize(
    ("obstacle", "text", "advice"),
    [
        ("unauthorized", "Telegram refuses its token (unauthorized)", "Give it its new token."),
        ("connect", "Telegram cannot be reached (connect)", "It tries again by itself."),
        ("a new word", "a new word", "It tries again by itself."),
    ],
)
def test_a_bot_that_could_not_send_was_named_by_a_word_of_the_code_without_what_to_do(
    obstacle: str, text: str, advice: str
) -> None:
    said = [one for one in troubles(held_bot(obstacle, 3)) if "cannot send" in one.text]
    assert [(one.text, one.advice, one.link) for one in said] == [
        (f"Bot {BOT} cannot send: {text}, and 3 messages wait.", advice, f"/bots/{BOT}")
    ]


def test_dead_letters_of_one_bot_stood_above_a_bot_that_cannot_send() -> None:
    limit = Rate(30, 1)

    def bot(number: int, **more: object) -> BotState:
        facts = {"counts": OutboxStats(), "sends": 0.0, "refused": 0.0, "nominal": limit, "allowed": limit}
        return msgspec.convert(facts | more | {"bot": number}, BotState)

    bots = (
        bot(1, counts=OutboxStats(dead=8)),
        bot(2, is_paused=True),
        bot(3, obstacle="unauthorized"),
    )
    told = troubles(SystemState(at=0.0, store="sqlite", bots=bots))
    assert [one.tone for one in told] == ["bad", "warn", "dim"]


async def test_charts_end_with_what_is_true_now(service: Service) -> None:
    await service.gate.outbox.pause(BOT)
    await service.put()
    await service.gate.clock.sleep(2)  # less than until the next sample
    shown = (await service.viewer.get("/")).body.decode()
    assert "Waiting messages in the last hour: 1 now" in shown
