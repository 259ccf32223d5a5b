"""The network around the model, and a crowd that lives with it, in virtual time."""

import asyncio
import random
from typing import Any

import pytest

from simulated import TOKEN
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim import virtual_time
from tidegate.sim.faults import PERFECT
from tidegate.sim.telegram import (
    ConnectionCut,
    Crowd,
    Faults,
    Habits,
    Latency,
    Limits,
    Person,
    SimulatedTelegram,
    World,
)
from tidegate.sim.telegram.control import known_bot
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.parameters import TelegramApiError
from tidegate.sim.virtual_time import VirtualClock

HELLO = {"chat_id": 7, "text": "Hello #1"}


async def test_latency_delays_arrival_and_answer(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(
        clock, faults=Faults(latency_in=Latency.parse("100"), latency_out=Latency.parse("300"))
    )
    await telegram.call(TOKEN, "sendMessage", HELLO)
    assert clock.monotonic() == pytest.approx(0.4)
    assert telegram.request_log.log[0].at == pytest.approx(clock.epoch + 0.1)  # counted when it arrived


async def test_a_lost_answer_was_accepted_and_a_lost_request_was_not(clock: VirtualClock) -> None:
    for faults, accepted in ((Faults(lost_answer=1), 1), (Faults(lost_request=1), 0), (Faults(silent=1), 1)):
        telegram = SimulatedTelegram(clock, faults=faults)
        with pytest.raises(ConnectionCut):
            await telegram.call(TOKEN, "sendMessage", HELLO)
        assert telegram.report()["accepted"] == accepted


async def test_a_server_error_was_not_accepted(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(server_error=1))
    answers = [await telegram.call(TOKEN, "sendMessage", HELLO) for _ in range(20)]
    assert {answer.status for answer in answers} == {500, 502}
    assert all(answer.raw is not None for answer in answers if answer.status == 502)
    assert telegram.report()["accepted"] == 0
    assert telegram.report()["faults"] == {"server_error": 20}


async def test_a_malformed_answer_was_accepted(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(malformed=1))
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).raw == b'{"ok":tru'
    assert telegram.report()["accepted"] == 1


async def test_limits_and_faults_change_while_it_runs(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    telegram.faults = Faults(server_error=1)
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status >= 500
    telegram.faults = Faults()
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 200
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 429
    telegram.reset()
    assert telegram.report()["requests"] == 0
    assert (await telegram.call(TOKEN, "sendMessage", HELLO)).status == 200


async def echo(telegram: SimulatedTelegram, token: str) -> None:
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
    telegram = SimulatedTelegram(clock)
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


async def test_a_button_that_is_pressed_by_its_label_as_data_names_the_label(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock)
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    markup = {"inline_keyboard": [[{"text": "Order", "callback_data": "o:17"}]]}
    person = Person(telegram, bot, 7)
    person.says("/start")
    await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "Hi", "reply_markup": markup})

    with pytest.raises(LookupError, match="'Order' is what a button reads, not its data: give it as label"):
        person.presses("Order")


def crowd_of(users: int, seconds: float, seed: int) -> tuple[Json, Json]:
    async def main(clock: VirtualClock) -> tuple[Json, Json]:
        faults = Faults(latency_in=Latency.parse("5-40"), latency_out=Latency.parse("5-40"))
        telegram = SimulatedTelegram(clock, limits=Limits(), faults=faults, seed=seed)
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        running = asyncio.create_task(echo(telegram, TOKEN))
        crowd = Crowd(telegram, bot, users=users, habits=Habits(block=0.01), seed=seed)
        await crowd.run(seconds)
        running.cancel()
        return crowd.report(), telegram.report()

    return virtual_time.run(main, seed)


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


class Jumping(VirtualClock):
    """A machine whose time of day is set back by a day after each look."""

    def now(self) -> float:
        self.epoch -= 86_400
        return super().now()


async def test_a_wall_clock_that_jumps_does_not_change_what_is_counted(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(
        Jumping(asyncio.get_running_loop()), limits=Limits(burst=1, closes="nothing")
    )
    statuses = []
    for pause in (0.5, 0.5, 1.0, 1.0):
        statuses.append((await telegram.call(TOKEN, "sendMessage", HELLO)).status)
        await clock.sleep(pause)
    assert statuses == [200, 429, 200, 200]
    report = telegram.report()
    assert (report["seconds"], report["peak_rps"]) == (2.0, 2)


async def test_every_answered_call_is_in_the_report(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, world=World(tokens={TOKEN}), limits=Limits(burst=1))
    await telegram.call(TOKEN, "getUpdates")
    await telegram.call(TOKEN, "GETUPDATES", {"limit": 0})
    await telegram.call(TOKEN, "setWebhook", {"url": "http://[::1"})
    await telegram.call(TOKEN, "sendmessage", HELLO)
    await telegram.call(TOKEN, "SENDMESSAGE", HELLO)
    await telegram.call("43:wrong", "getMe")
    await telegram.call("no token", "x" * 10_000)
    telegram.refuse(TOKEN, "sendMessage", TelegramApiError(413, "Request Entity Too Large"))
    telegram.faults = Faults(server_error=1)
    await telegram.call(TOKEN, "getMe")
    report = telegram.report()
    assert report["methods"] == {
        "sendMessage": 3,
        "getUpdates": 2,
        "getMe": 2,
        "setWebhook": 1,
        "unknown": 1,
    }
    server_errors = [status for status in report["statuses"] if int(status) >= 500]
    assert len(server_errors) == 1
    counted = {status: count for status, count in report["statuses"].items() if int(status) < 500}
    assert counted == {"200": 2, "400": 2, "401": 1, "404": 1, "413": 1, "429": 1}
    assert report["requests"] == 7  # all but getUpdates
    assert {entry.method for entry in telegram.request_log.log} == set(report["methods"])


async def test_two_pollers_show_as_conflicts(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock)
    first = asyncio.create_task(telegram.call(TOKEN, "getUpdates", {"timeout": 10}))
    await clock.sleep(1)
    await telegram.call(TOKEN, "getUpdates", {"timeout": 1})
    await first
    assert telegram.report()["statuses"] == {"200": 1, "409": 1}


async def test_new_limits_do_not_hide_what_was_counted(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    for _ in range(2):
        await telegram.call(TOKEN, "sendMessage", HELLO)
    telegram.set_limits(Limits(burst=1, closes="bot"))
    report = telegram.report()
    assert (report["refused"], report["peaks"]) == (1, {"bot": 1, "private": 1})
    telegram.reset()
    assert (telegram.report()["peaks"], telegram.flood.limits.closes) == ({}, "bot")


async def test_faults_that_are_none_take_the_short_way(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, faults=Faults(latency_in=Latency.parse("0")))
    assert telegram.faults is PERFECT
    telegram.faults = Faults(silent=0.0)
    assert telegram.faults is PERFECT


async def test_the_log_keeps_little_of_what_is_sent(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock)
    for chat in ("@" + "x" * 10**6, 10**4000, ["x"] * 1000):
        await telegram.call(TOKEN, "sendMessage", {"chat_id": chat, "text": "x" * 10**6})
    logged = [(str(entry.chat_id), entry.text) for entry in telegram.request_log.log]
    assert [(len(chat), len(text)) for chat, text in logged] == [(64, 100), (4, 100), (4, 100)]


async def test_the_log_has_a_chat_as_a_number_also_where_a_form_gave_a_text(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock)
    for chat in (7, "7", "-100123", "@news", "9" * 40):
        await telegram.call(TOKEN, "sendMessage", {"chat_id": chat, "text": "x"})
    assert [entry.chat_id for entry in telegram.request_log.log] == [7, 7, -100123, "@news", "9" * 40]


async def test_an_open_world_forgets_the_oldest_chats_but_not_who_blocked_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sim.telegram.world.CHATS_KEPT", 100)
    telegram = SimulatedTelegram(clock, world=World(), limits=Limits(bot=Rate(10_000, 1)))
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    listener = Person(telegram, bot, 1)
    Person(telegram, bot, 2).blocks()
    telegram.world.user(3).deactivated = True
    for chat in range(1, 1_000):
        await telegram.call(TOKEN, "sendMessage", {"chat_id": chat, "text": "x"})
    assert len(telegram.world.chats) <= 120
    assert len(telegram.world.users) <= 121
    await clock.sleep(1)
    statuses = [
        (await telegram.call(TOKEN, "sendMessage", {"chat_id": chat, "text": "x"})).status for chat in (2, 3)
    ]
    assert statuses == [403, 403]
    assert len(listener.heard) == 1


def test_a_closed_world_forgets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sim.telegram.world.CHATS_KEPT", 10)
    world = World(open_world=False)
    bot = world.bot(TOKEN)
    assert bot is not None
    for user in range(1, 101):
        world.add_private(bot, user)
    assert len(world.chats) == 100


@pytest.mark.parametrize(
    "habits",
    [{"texts": ()}, {"press": 9}, {"block": -1}, {"patience": -1}, {"patience": 0}, {"press": float("nan")}],
)
def test_habits_that_nobody_has_are_refused(habits: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        Habits(**habits)


async def test_a_bot_without_a_call_is_told_that_its_first_call_makes_it_known(clock: VirtualClock) -> None:
    with pytest.raises(BadInputError, match=r"bot 7 is not known.*first call, such as getMe: start it"):
        known_bot(SimulatedTelegram(clock), 7)
