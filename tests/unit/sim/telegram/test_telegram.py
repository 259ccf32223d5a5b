"""The network around the model, and a crowd that lives with it, in virtual time."""

import asyncio
import random

import pytest

from simulated import TOKEN
from tidegate.sim import virtual
from tidegate.sim.telegram import ConnectionCut, Crowd, Faults, Habits, Latency, Limits, Person, Telegram
from tidegate.sim.telegram.world import Json
from tidegate.sim.virtual import VirtualClock

HELLO = {"chat_id": 7, "text": "Hello #1"}


async def test_latency_delays_arrival_and_answer(clock: VirtualClock) -> None:
    telegram = Telegram(
        clock, faults=Faults(latency_in=Latency.parse("100"), latency_out=Latency.parse("300"))
    )
    await telegram.call(TOKEN, "sendMessage", HELLO)
    assert clock.monotonic() == pytest.approx(0.4)
    assert telegram.ledger.log[0].at == pytest.approx(clock.epoch + 0.1)  # counted when it arrived


async def test_a_lost_answer_was_accepted_and_a_lost_request_was_not(clock: VirtualClock) -> None:
    for faults, accepted in ((Faults(lost_answer=1), 1), (Faults(lost_request=1), 0), (Faults(silent=1), 1)):
        telegram = Telegram(clock, faults=faults)
        with pytest.raises(ConnectionCut):
            await telegram.call(TOKEN, "sendMessage", HELLO)
        assert telegram.report()["accepted"] == accepted


async def test_a_server_error_was_not_accepted(clock: VirtualClock) -> None:
    telegram = Telegram(clock, faults=Faults(server_error=1))
    answers = [await telegram.call(TOKEN, "sendMessage", HELLO) for _ in range(20)]
    assert {answer.status for answer in answers} == {500, 502}
    assert all(answer.raw is not None for answer in answers if answer.status == 502)
    assert telegram.report()["accepted"] == 0
    assert telegram.report()["faults"] == {"server_error": 20}


async def test_a_malformed_answer_was_accepted(clock: VirtualClock) -> None:
    telegram = Telegram(clock, faults=Faults(malformed=1))
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).raw == b'{"ok":tru'
    assert telegram.report()["accepted"] == 1


async def test_limits_and_faults_change_while_it_runs(clock: VirtualClock) -> None:
    telegram = Telegram(clock)
    telegram.faults = Faults(server_error=1)
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status >= 500
    telegram.faults = Faults()
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 200
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 429
    telegram.reset()
    assert telegram.report()["requests"] == 0
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 200


async def echo(telegram: Telegram, token: str) -> None:
    """A bot that answers every text and press, with two buttons."""
    offset = 0
    markup = {"inline_keyboard": [[{"text": name, "callback_data": name} for name in ("a", "b")]]}
    while True:
        answer = await telegram.call(token, "getUpdates", {"timeout": 50, "offset": offset})
        for update in answer.body["result"]:
            offset = update["update_id"] + 1
            source: Json = update.get("callback_query") or update.get("message") or {}
            if "from" in source:
                params = {"chat_id": source["from"]["id"], "text": "ok", "reply_markup": markup}
                await telegram.call(token, "sendMessage", params)


async def test_a_person_talks_with_a_bot(clock: VirtualClock) -> None:
    telegram = Telegram(clock)
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    running = asyncio.create_task(echo(telegram, TOKEN))
    person = Person(telegram, bot, 7)
    with pytest.raises(LookupError, match="sees no buttons"):
        person.presses()
    person.says("/start")
    assert (await person.hears())["text"] == "ok"
    await clock.sleep(1)
    person.presses("b")
    assert (await person.hears())["text"] == "ok"
    with pytest.raises(LookupError, match="no button 'z'"):
        person.presses("z")
    with pytest.raises(TimeoutError):
        await person.hears(timeout=5)
    running.cancel()


def crowd_of(users: int, seconds: float, seed: int) -> tuple[Json, Json]:
    async def main(clock: VirtualClock) -> tuple[Json, Json]:
        faults = Faults(latency_in=Latency.parse("5-40"), latency_out=Latency.parse("5-40"))
        telegram = Telegram(clock, limits=Limits(), faults=faults, seed=seed)
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        running = asyncio.create_task(echo(telegram, TOKEN))
        crowd = Crowd(telegram, bot, users=users, habits=Habits(block=0.01), seed=seed)
        await crowd.run(seconds)
        running.cancel()
        return crowd.report(), telegram.report()

    return virtual.run(main, seed)


def test_a_crowd_is_answered_and_counted() -> None:
    crowd, telegram = crowd_of(users=20, seconds=60, seed=1)
    assert crowd["said"] == crowd["answered"] + crowd["unanswered"]
    assert crowd["answered"] > 200
    assert crowd["blocked"] > 0
    assert 10 <= crowd["p50_ms"] <= crowd["p99_ms"]
    assert telegram["accepted"] == crowd["answered"]


def test_the_same_seed_gives_the_same_crowd() -> None:
    assert crowd_of(users=20, seconds=30, seed=5) == crowd_of(users=20, seconds=30, seed=5)
    assert crowd_of(users=20, seconds=30, seed=5) != crowd_of(users=20, seconds=30, seed=6)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(20))
def test_thousands_of_people_write_at_once(seed: int) -> None:
    users = random.Random(seed).randint(2_000, 5_000)
    crowd, telegram = crowd_of(users=users, seconds=30, seed=seed)
    assert crowd["said"] == crowd["answered"] + crowd["unanswered"]
    assert crowd["said"] > users
    assert telegram["accepted"] >= crowd["answered"]
