"""How updates reach a bot: getUpdates and webhooks, in virtual time."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from simulated import Call
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.telegram.updates import UPDATES_KEPT, ChatOrder, PendingUpdates
from tidegate.sim.virtual_time import VirtualClock

HOOK = "http://127.0.0.1:9/hook"


def texts(updates: list[dict[str, Any]]) -> list[str]:
    return [update["message"]["text"] for update in updates]


async def test_updates_stay_until_the_offset_confirms_them(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call
) -> None:
    person = Person(telegram, bot, 7)
    person.says("one")
    person.says("/two now")
    first = await ok("getUpdates", limit=1)
    both = await ok("getUpdates")
    rest = await ok("getUpdates", offset=first[0]["update_id"] + 1)
    assert (texts(first), texts(both), texts(rest)) == (["one"], ["one", "/two now"], ["/two now"])
    assert rest[0]["message"]["entities"] == [{"type": "bot_command", "offset": 0, "length": 4}]
    assert await ok("getUpdates", offset=rest[0]["update_id"] + 1) == []


async def test_a_negative_offset_keeps_the_last_updates_only(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call
) -> None:
    person = Person(telegram, bot, 7)
    for text in "abc":
        person.says(text)
    assert texts(await ok("getUpdates", offset=-1)) == ["c"]
    assert texts(await ok("getUpdates")) == ["c"]


async def test_a_long_poll_ends_with_an_update_or_with_its_time(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, clock: VirtualClock
) -> None:
    assert await ok("getUpdates", timeout=30) == []
    assert clock.monotonic() == 30

    async def later() -> None:
        await clock.sleep(5)
        Person(telegram, bot, 7).says("late")

    speaking = asyncio.create_task(later())
    assert texts(await ok("getUpdates", timeout=30)) == ["late"]
    assert clock.monotonic() == 35
    await speaking


async def test_a_second_poll_ends_the_first_with_a_conflict(
    fails: Call, ok: Call, telegram: SimulatedTelegram, bot: SimulatedBot
) -> None:
    first = asyncio.create_task(fails("getUpdates", timeout=30))
    await telegram.clock.sleep(1)
    second = asyncio.create_task(ok("getUpdates", timeout=30))
    status, reason = await first
    assert status == 409
    assert "terminated by other getUpdates" in reason
    Person(telegram, bot, 7).says("hi")
    assert texts(await second) == ["hi"]


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 101}, {"timeout": -1}, {"offset": "x"}])
async def test_a_malformed_poll_is_refused(fails: Call, params: dict[str, object]) -> None:
    assert (await fails("getUpdates", **params))[0] == 400


async def test_only_allowed_kinds_of_updates_come(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call
) -> None:
    await ok("getUpdates", allowed_updates=["my_chat_member"])
    person = Person(telegram, bot, 7)
    person.says("unheard")
    person.blocks()
    person.unblocks()
    updates = await ok("getUpdates")
    status = [update["my_chat_member"]["new_chat_member"]["status"] for update in updates]
    assert status == ["kicked", "member"]


def test_updates_that_nobody_fetches_are_bounded() -> None:
    queue = PendingUpdates()
    for i in range(UPDATES_KEPT + 5):
        queue.put("message", {"text": str(i)})
    assert (len(queue), queue.dropped) == (UPDATES_KEPT, 5)
    assert queue.first(1)[0]["message"]["text"] == "5"


class Counted(dict[int, Any]):
    """Counts what is asked of it; to iterate it would be to step over everything that is gone."""

    steps = 0

    def __contains__(self, key: object) -> bool:
        self.steps += 1
        return super().__contains__(key)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("iterated")


def test_a_backlog_drains_with_work_that_is_linear_in_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100_000
    for drain in ("webhook", "polling"):
        queue, pending = PendingUpdates(), Counted()
        monkeypatch.setattr(queue, "_pending", pending)
        for i in range(count + 5):
            queue.put("message", {"text": str(i)})
        drained = last = 0
        while drain == "webhook" and (update := queue.after(last)) is not None:
            drained, last = drained + 1, update["update_id"]
            queue.confirm(last)
        while drain == "polling" and (updates := queue.first(100)):
            drained += len(updates)
            queue.confirm_before(updates[-1]["update_id"] + 1)
        assert (drained, len(queue)) == (count, 0)
        assert pending.steps <= 4 * count


async def test_updates_that_were_dropped_are_reported(telegram: SimulatedTelegram, bot: SimulatedBot) -> None:
    bot.updates.dropped = 3
    assert telegram.report()["updates_dropped"] == 3
    telegram.reset()
    assert telegram.report()["updates_dropped"] == 0


class Receiver:
    """A bot's web server, in process."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.seconds = 0.0
        self.answers: list[WebhookAnswer | Exception] = []
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.headers: dict[str, str] = {}
        self.in_flight = self.most_in_flight = 0

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> WebhookAnswer:
        assert url == HOOK
        self.headers = headers
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self._clock.sleep(self.seconds)
        self.in_flight -= 1
        self.heard.append((self._clock.monotonic(), msgspec.json.decode(body)))
        answer = self.answers.pop(0) if self.answers else WebhookAnswer(200)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def receiver(clock: VirtualClock) -> Receiver:
    return Receiver(clock)


@pytest.fixture
async def telegram(clock: VirtualClock, receiver: Receiver) -> Any:  # noqa: ANN401  (an async fixture's generator)
    telegram = SimulatedTelegram(clock, post=receiver.post)
    yield telegram
    await telegram.close()


async def test_a_webhook_gets_each_update_once_with_its_secret(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    person = Person(telegram, bot, 7)
    person.says("waiting already")
    await ok("setWebhook", url=HOOK, secret_token="s3cret")
    person.says("new")
    await clock.sleep(1)
    assert texts([update for _, update in receiver.heard]) == ["waiting already", "new"]
    assert receiver.headers["X-Telegram-Bot-Api-Secret-Token"] == "s3cret"
    assert (await ok("getWebhookInfo"))["pending_update_count"] == 0


async def test_a_webhook_that_fails_gets_the_update_again(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.answers = [
        WebhookAnswer(500),
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError(),
        WebhookAnswer(200),
    ]
    await ok("setWebhook", url=HOOK)
    Person(telegram, bot, 7).says("hi")
    await clock.sleep(2)
    info = await ok("getWebhookInfo")
    assert (info["pending_update_count"], info["last_error_message"]) == (
        1,
        "Connection failed: Connection refused",
    )
    await clock.sleep(10)
    assert [at for at, _ in receiver.heard] == [0, 1, 3, 7]
    assert len({update["update_id"] for _, update in receiver.heard}) == 1
    assert (await ok("getWebhookInfo"))["pending_update_count"] == 0


async def test_max_connections_bounds_the_deliveries_at_once(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.seconds = 1
    await ok("setWebhook", url=HOOK, max_connections=3)
    for i in range(9):
        Person(telegram, bot, 7 + i).says(str(i))
    await clock.sleep(5)
    assert receiver.most_in_flight == 3
    assert [at for at, _ in receiver.heard] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_chat_gets_its_updates_one_after_another_and_others_beside_it(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.seconds = 1
    ann, bob = Person(telegram, bot, 7), Person(telegram, bot, 8)
    await ok("setWebhook", url=HOOK)
    for text in ("ann 1", "ann 2", "ann 3"):
        ann.says(text)
    bob.says("bob 1")
    await clock.sleep(5)
    heard = [(at, update["message"]["text"]) for at, update in receiver.heard]
    assert heard == [(1, "ann 1"), (1, "bob 1"), (2, "ann 2"), (3, "ann 3")]


async def test_what_fails_holds_its_chat_and_nobody_else(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.answers = [WebhookAnswer(500), WebhookAnswer(200), WebhookAnswer(500)]
    ann, bob = Person(telegram, bot, 7), Person(telegram, bot, 8)
    await ok("setWebhook", url=HOOK)
    ann.says("ann 1")
    bob.says("bob 1")
    ann.says("ann 2")
    await clock.sleep(10)
    heard = [(at, update["message"]["text"]) for at, update in receiver.heard]
    assert heard == [(0, "ann 1"), (0, "bob 1"), (1, "ann 1"), (3, "ann 1"), (3, "ann 2")]
    assert (await ok("getWebhookInfo"))["pending_update_count"] == 0


async def test_who_has_much_waiting_takes_one_connection(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.seconds = 1
    ann = Person(telegram, bot, 7)
    for i in range(100):
        ann.says(str(i))
    for i in range(4):
        Person(telegram, bot, 100 + i).says(f"other {i}")
    await ok("setWebhook", url=HOOK, max_connections=2)
    await clock.sleep(5.5)
    others = [at for at, update in receiver.heard if update["message"]["chat"]["id"] != 7]
    assert others == [1, 2, 3, 4]


async def test_a_webhook_that_is_set_again_goes_on_in_order(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.seconds = 1
    ann = Person(telegram, bot, 7)
    await ok("setWebhook", url=HOOK)
    for text in "abcd":
        ann.says(text)
    await clock.sleep(1.5)
    await ok("setWebhook", url=HOOK)
    await clock.sleep(10)
    assert texts([update for _, update in receiver.heard]) == list("abcd")


def test_a_button_pressed_in_a_chat_waits_for_what_was_written_there() -> None:
    queue = PendingUpdates()
    chat = {"id": 7, "type": "private"}
    queue.put("message", {"chat": chat, "from": {"id": 7}})
    queue.put("callback_query", {"message": {"chat": chat}, "from": {"id": 7}})
    queue.put("inline_query", {"from": {"id": 8}})
    queue.put("poll", {"id": "1"})
    queue.put("poll", {"id": "1"})
    order = ChatOrder(queue)
    first = order.next()
    assert first is not None
    others = [update["update_id"] for update in iter(order.next, None)]
    assert (others, len(queue)) == ([3, 4, 5], 5)
    behind = order.taken(first)
    assert behind is not None
    assert "callback_query" in behind
    assert order.taken(behind) is None


def test_a_full_backlog_behind_one_chat_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, pending = PendingUpdates(), Counted()
    monkeypatch.setattr(queue, "_pending", pending)
    for number in range(UPDATES_KEPT):
        queue.put("message", {"chat": {"id": 7 if number < UPDATES_KEPT - 100 else number}})
    order = ChatOrder(queue)
    under_way = list(iter(order.next, None))
    assert len(under_way) == 101
    for update in under_way:
        following: dict[str, Any] | None = update
        while following is not None:
            following = order.taken(following)
    assert len(queue) == 0
    assert pending.steps <= 4 * UPDATES_KEPT


def test_what_is_dropped_is_not_waited_for_and_fills_no_memory() -> None:
    queue = PendingUpdates()
    order = ChatOrder(queue)
    queue.put("message", {"chat": {"id": 7}})
    stuck = order.next()
    assert stuck is not None
    for _ in range(5):
        queue.put("message", {"chat": {"id": 7}})
    for _ in range(UPDATES_KEPT + 50):
        queue.put("message", {"chat": {"id": 8}})
        order.next()
    held = sum(map(len, order._behind.values()))  # noqa: SLF001  (what must not grow)
    assert held <= len(queue) == UPDATES_KEPT
    assert order.taken(stuck) is None


async def test_a_webhook_may_answer_with_a_call(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver
) -> None:
    receiver.answers = [WebhookAnswer(200, {"method": "sendMessage", "chat_id": 7, "text": "pong"})]
    await ok("setWebhook", url=HOOK)
    person = Person(telegram, bot, 7)
    person.says("ping")
    assert (await person.hears())["text"] == "pong"


async def test_setting_a_webhook_ends_a_poll_and_refuses_others(
    telegram: SimulatedTelegram,
    bot: SimulatedBot,
    ok: Call,
    fails: Call,
    receiver: Receiver,
    clock: VirtualClock,
) -> None:
    poll = asyncio.create_task(fails("getUpdates", timeout=30))
    await clock.sleep(1)
    await ok("setWebhook", url=HOOK)
    assert (await poll)[0] == 409
    assert (await fails("getUpdates"))[0] == 409
    Person(telegram, bot, 7).says("hi")
    await clock.sleep(1)
    assert len(receiver.heard) == 1


async def test_what_a_webhook_did_not_take_is_there_for_polling(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.answers = [WebhookAnswer(500)] * 3
    await ok("setWebhook", url=HOOK)
    Person(telegram, bot, 7).says("hi")
    await clock.sleep(1)
    await ok("deleteWebhook")
    assert texts(await ok("getUpdates")) == ["hi"]
    await ok("deleteWebhook", drop_pending_updates=True)
    assert await ok("getUpdates") == []


@pytest.mark.parametrize(
    "params",
    [
        {"url": "ftp://127.0.0.1/x"},
        {"url": "http://example.org/hook"},
        {"url": "http://10.0.0.1/hook"},
        {"url": HOOK, "secret_token": "not allowed!"},
        {"url": HOOK, "max_connections": 0},
        {"url": HOOK, "max_connections": 101},
    ],
)
async def test_a_bad_webhook_is_refused(fails: Call, params: dict[str, object]) -> None:
    assert (await fails("setWebhook", **params))[0] == 400
