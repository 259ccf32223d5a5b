"""The gate and what is behind the bot: one client for each API, pollers that run while it delivers."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.errors import BadInputError, ClosedError
from tidegate.polling import BatchPoller, News, Subscription
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

NOCODB = "https://nocodb.example.com"


def open_gate(store: str, clock: VirtualClock, telegram: SimulatedTelegram) -> Tidegate:
    gate = Tidegate(store, clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    return gate


class Shop:
    """Of which orders are paid, and how often that was asked."""

    def __init__(self, *paid: str) -> None:
        self.paid = set(paid)
        self.asked = 0

    async def fetch(self, keys: Sequence[str]) -> dict[str, bool]:
        self.asked += 1
        return {key: key in self.paid for key in keys}


def poller(gate: Tidegate, shop: Shop, clock: VirtualClock) -> BatchPoller:
    async def tell(who: Subscription, news: News) -> None:
        assert news.kind == "met"
        await gate.send(chat_id=who.data["chat"], text=f"{who.key} is paid")

    return BatchPoller(
        shop.fetch, notify=tell, clock=clock, subscriptions=gate.subscriptions("payments"), restore_every=0.0
    )


async def test_who_waits_is_told_while_the_gate_delivers_also_after_a_restart(
    clock: VirtualClock, telegram: SimulatedTelegram, tmp_path: Path
) -> None:
    store, shop = str(tmp_path / "bot.db"), Shop("order 1")
    async with open_gate(store, clock, telegram) as gate:
        payments = poller(gate, shop, clock)
        gate.poll(payments)
        await payments.subscribe("order 1", {"chat": 1001})
        await payments.subscribe("order 2", {"chat": 1002})
        assert not payments.is_running
        async with gate.worker():
            assert payments.is_running
            await clock.sleep(61)
        assert not payments.is_running
    assert telegram.report()["accepted"] == 1

    shop.paid.add("order 2")
    async with open_gate(store, clock, telegram) as gate:
        gate.poll(poller(gate, shop, clock))
        async with gate.worker():
            await clock.sleep(121)

    assert [entry.text for entry in telegram.request_log.log if entry.method == "sendMessage"] == [
        "order 1 is paid",
        "order 2 is paid",
    ]


async def test_a_poller_is_named_after_its_subscriptions(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)

    assert poller(gate, Shop(), clock).name == "payments"


async def test_an_api_with_its_token_has_one_client_and_no_text_shows_the_token(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    async with gate:
        first, second = gate.nocodb(NOCODB, "secret-1"), gate.nocodb(NOCODB + "/", "secret-1")
        other = gate.nocodb(NOCODB, "secret-2")

        assert first.upstream is second.upstream
        assert first.upstream is not other.upstream
        assert "secret" not in repr(vars(gate)) + repr(first.upstream)
    with pytest.raises(ClosedError):
        await first.table("m1").read(1)


@pytest.mark.parametrize(("url", "token"), [("nocodb.example.com", "t"), (NOCODB, ""), (NOCODB, "two words")])
async def test_what_cannot_be_an_address_or_a_token_is_refused(
    clock: VirtualClock, url: str, token: str
) -> None:
    with pytest.raises(BadInputError):
        Tidegate("memory://", clock=clock).nocodb(url, token)


async def test_only_a_poller_can_be_polled_with(clock: VirtualClock) -> None:
    with pytest.raises(BadInputError, match="DeltaPoller"):
        Tidegate("memory://", clock=clock).poll("payments")  # type: ignore[arg-type]


async def test_a_poller_that_comes_while_the_gate_delivers_runs_at_once_and_stops_with_it(
    clock: VirtualClock, telegram: SimulatedTelegram, tmp_path: Path
) -> None:
    shop = Shop("order 1")
    async with open_gate(str(tmp_path / "bot.db"), clock, telegram) as gate:
        payments = poller(gate, shop, clock)
        async with gate.worker():
            gate.poll(payments)
            assert payments.is_running
            await payments.subscribe("order 1", {"chat": 1001})
            await clock.sleep(61)
        assert not payments.is_running
        later = poller(gate, shop, clock)
        gate.poll(later)
        assert not later.is_running

    assert telegram.report()["accepted"] == 1


@pytest.mark.parametrize("store", ["bot.db", "memory://"])
async def test_subscriptions_of_a_gate_are_good_when_it_is_opened_again(
    clock: VirtualClock, telegram: SimulatedTelegram, tmp_path: Path, store: str
) -> None:
    shop = Shop("order 1", "order 2")
    gate = open_gate(store if "//" in store else str(tmp_path / store), clock, telegram)
    payments = poller(gate, shop, clock)
    gate.poll(payments)
    for order in ("order 1", "order 2"):
        async with gate, gate.worker():
            await payments.subscribe(order, {"chat": 1001})
            await clock.sleep(61)

    assert telegram.report()["accepted"] == 2


async def test_a_callback_may_stop_the_gate(
    clock: VirtualClock, telegram: SimulatedTelegram, tmp_path: Path
) -> None:
    gate, shop = open_gate(str(tmp_path / "bot.db"), clock, telegram), Shop("order 1")

    async def tell(_: Subscription, __: News) -> None:
        await gate.stop()

    payments = BatchPoller(shop.fetch, notify=tell, clock=clock, subscriptions=gate.subscriptions("payments"))
    gate.poll(payments)
    await gate.start()
    await payments.subscribe("order 1")
    await clock.sleep(2)

    assert (gate.is_open, payments.is_running) == (False, False)
