"""The page of a bot: its limits, and its webhook, of which Telegram is asked rarely, in the background."""

import re

import pytest

from tidegate.ops.api.limits import BotLimitsView
from tidegate.ops.dashboard.bot_pages import limit_fields
from tidegate.ops.dashboard.webhook_watch import ASK_EVERY
from tidegate.sim.faults import Faults
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.entities import WebhookSettings
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, Service

URL = f"https://bots.example.org/webhook/telegram/{BOT}"


@pytest.mark.parametrize(
    ("rate", "a_second", "a_minute"),
    [("30/1", "30", "1800"), ("20/60", "0.333333", "20"), ("1000000000/1", "1000000000", "60000000000")],
)
def test_a_limit_is_shown_as_calls_in_a_fixed_time_also_one_that_nobody_could_type(
    rate: str, a_second: str, a_minute: str
) -> None:
    limits = BotLimitsView(
        bot=BOT,
        bot_rate=rate,
        chat_rate=rate,
        reply_burst=1,
        group_rate=rate,
        paid_rate=rate,
        own=["chat_rate"],
        learned=None,
        closed_until=None,
        obstacle=None,
    )
    fields = limit_fields(limits)
    assert [field.value for field in fields] == [a_second, a_second, a_minute]
    assert [field.is_own for field in fields] == [False, True, False]


async def webhook(service: Service, role: str = "operator") -> str:
    """The part of the page that is about the webhook, in words."""
    answer = await getattr(service, role).get(f"/bots/{BOT}")
    found = re.search(r'aria-labelledby="webhook-title">(.*?)</section>', answer.body.decode(), re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


def times_asked(telegram: SimulatedTelegram) -> int:
    return [one.method for one in telegram.request_log.log].count("getWebhookInfo")


async def test_a_page_does_not_wait_for_telegram_and_has_its_answer_soon(
    service: Service, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    bot = telegram.world.bot(f"{BOT}:token")
    assert bot is not None
    bot.webhook = WebhookSettings(URL, None, 40)
    async with service.gate.worker():
        assert "Telegram is being asked." in await webhook(service)
        await clock.sleep(1)
        shown = await webhook(service)
        assert "receives updates Updates arrive at this address." in shown
        assert URL in shown
        assert "0 updates wait" in shown
        assert URL not in await webhook(service, "viewer")  # an address may be a secret

        for _ in range(10):
            await webhook(service)
        assert times_asked(telegram) == 1
        bot.webhook = None
        await clock.sleep(ASK_EVERY)
        await webhook(service)
        await clock.sleep(1)
        assert "not set No webhook is set: the bot uses long polling." in await webhook(service)


async def test_a_telegram_that_does_not_answer_is_told(
    service: Service, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    telegram.faults = Faults(silent=1.0)
    async with service.gate.worker():
        await webhook(service)
        await clock.sleep(20)
        assert "no answer within 10 s" in await webhook(service)
        assert (await webhook(service, "viewer")).startswith("Webhook not known Telegram was asked")
        assert "no answer" not in await webhook(service, "viewer")


async def test_a_process_that_does_not_deliver_does_not_ask(
    service: Service, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    await webhook(service)
    await clock.sleep(1)
    assert "Only a process that delivers asks Telegram for it" in await webhook(service)
    assert times_asked(telegram) == 0
