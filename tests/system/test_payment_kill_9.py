"""The payment bot is killed while people order and pay: each is confirmed once, nobody is left waiting."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from system.payment_street import Street, clock, street
from tidegate.model import Record, State

MANY: Final = 10  # kills: an update that is in hand at five of them is parked, so lives are longer then


async def die_again_and_again(stage: Street, kills: int, draw: random.Random, *, park: bool = False) -> None:
    for _ in range(kills):
        await clock.sleep(draw.uniform(0.1, 0.6) if kills < MANY else draw.uniform(0.3, 1.5))
        stage.kill()
        await stage.live(park=park)


def confirmations(stage: Street, records: Sequence[Record]) -> Counter[int]:
    """By chat, how many were put into the store."""
    wanted = {stage.words.confirmation(one.order or "") for one in stage.town.customers}
    return Counter(int(one.message.chat_id) for one in records if one.message.params.get("text") in wanted)


def check_store(stage: Street, records: Sequence[Record]) -> Counter[tuple[int | str, str]]:
    """Each who pays is confirmed once, nothing is there twice, nobody has two orders. How often the process
    died while a message was being sent, by chat and text.
    """
    put = confirmations(stage, records)
    assert len(put) == sum(one.pays for one in stage.town.customers)
    assert set(put.values()) == {1}
    crashes = Counter({(one.message.chat_id, one.message.params["text"]): one.crashes for one in records})
    assert len(crashes) == len(records), "something was said twice"
    orders = Counter(row["UserId"] for row in stage.town.orders() if row["UserId"] != "0")
    assert len(orders) == stage.town.users
    assert set(orders.values()) == {1}, "somebody has two orders"
    return crashes


@pytest.mark.parametrize(
    ("users", "kills"),
    [(40, 5), pytest.param(200, 30, marks=[pytest.mark.proof, pytest.mark.timeout(300)])],
)
async def test_each_is_confirmed_once_however_often_the_bot_is_killed(
    tmp_path: Path, users: int, kills: int
) -> None:
    async with street(tmp_path, users) as stage:
        await stage.live()
        people = asyncio.create_task(stage.town.live(stage.words, coming=0.3 * kills, slowness=0.1 * kills))
        await die_again_and_again(stage, kills, random.Random(users))
        async with clock.timeout(120):
            await people  # everybody has been told
        async with clock.timeout(10):
            while await stage.waiting():
                await clock.sleep(0.1)
        stage.kill()
        arrivals, records = stage.arrivals(), await stage.records()
        crashes = check_store(stage, records)

    doubled = arrivals.total() - len(arrivals)
    print({"users": users, "kills": kills, "in_flight": crashes.total(), "doubled": doubled})  # noqa: T201
    for message, times in arrivals.items():
        assert times <= 1 + crashes[message], f"{message} came {times} times"


@pytest.mark.proof
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("users", "kills"), [(200, 30)])
async def test_what_may_have_been_sent_is_parked_and_nothing_comes_twice(
    tmp_path: Path, users: int, kills: int
) -> None:
    async with street(tmp_path, users) as stage:
        for customer in stage.town.customers:
            customer.pays = True
        await stage.live(park=True)
        people = asyncio.create_task(stage.town.live(stage.words, coming=4, slowness=kills))
        async with clock.timeout(60):  # what is parked, a person does not answer: so first everybody orders
            while any(one.order is None for one in stage.town.customers):
                await clock.sleep(0.1)

        await die_again_and_again(stage, kills, random.Random(users), park=True)
        async with clock.timeout(120):
            while any(one.paid_at is None for one in stage.town.customers) or await stage.waiting():
                await clock.sleep(0.5)
        people.cancel()
        await asyncio.gather(people, return_exceptions=True)
        stage.kill()
        arrivals, records = stage.arrivals(), await stage.records()
        crashes = check_store(stage, records)

    states = Counter(str(one.state) for one in records)
    print({"users": users, "kills": kills, "in_flight": crashes.total(), **states})  # noqa: T201
    assert set(arrivals.values()) == {1}
    assert {one.state for one in records} <= {State.DELIVERED, State.PARKED}
