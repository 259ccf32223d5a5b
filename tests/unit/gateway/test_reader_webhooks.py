"""Readers that have their updates posted: in order, until they are taken, to hosts that are allowed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.delivery.transport import NoAnswer, RawAnswer
from tidegate.inbound.update_feed import FEED_SECONDS
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.gateway.test_readers import ALL, JSON, sharing, text_of

URL = "http://127.0.0.1:9000/hook"
OK = RawAnswer(200, "text/plain", b"")


class Hook:
    """The program at the other end."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.heard: list[tuple[str, str]] = []  # address, text
        self.headers: list[Mapping[str, str]] = []
        self.times: list[float] = []
        self.answers: list[RawAnswer | NoAnswer] = []
        self.seconds = 0.0

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> RawAnswer | NoAnswer:
        await self.clock.sleep(self.seconds)
        self.heard.append((url, text_of(msgspec.json.decode(body))))
        self.headers.append(headers)
        self.times.append(self.clock.monotonic())
        return self.answers.pop(0) if self.answers else OK

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.heard]


@pytest.fixture
def hook(clock: VirtualClock) -> Hook:
    return Hook(clock)


async def test_updates_are_posted_in_order_beside_others_who_poll(clock: VirtualClock, hook: Hook) -> None:
    hook.seconds = 0.5
    async with sharing(clock, post=hook) as readers:
        answer = await readers.call("setWebhook", "pushed", url=URL, secret_token="s3cret")
        readers.write("one", "two", "three")
        polled = await readers.texts(timeout=50)
        await clock.sleep(5)
        conflict = await readers.call("getUpdates", "pushed")

    assert answer.json == {"ok": True, "result": True, "description": "Webhook was set"}
    assert hook.heard == [(URL, "one"), (URL, "two"), (URL, "three")]
    assert hook.headers[0]["X-Telegram-Bot-Api-Secret-Token"] == "s3cret"
    assert polled == ["one", "two", "three"]
    assert conflict.status == 409
    assert conflict.error.startswith("Conflict: can't use getUpdates method while webhook is active")


async def test_an_update_is_posted_until_it_is_taken_and_the_next_ones_wait(
    clock: VirtualClock, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers = [
        RawAnswer(500, JSON, b""),
        NoAnswer(left=True, reason="connect"),
        RawAnswer(302, JSON, b""),
    ]
    async with sharing(clock, post=hook) as readers:
        await readers.call("setWebhook", "pushed", url=URL)
        readers.write("one", "two")
        await clock.sleep(2)
        info = (await readers.call("getWebhookInfo", "pushed")).json["result"]
        await clock.sleep(60)
        healed = (await readers.call("getWebhookInfo", "pushed")).json["result"]

    assert hook.texts == ["one"] * 4 + ["two"]
    pauses = [later - earlier for earlier, later in zip(hook.times, hook.times[1:], strict=False)]
    assert pauses == pytest.approx([1, 2, 4, 0], abs=0.1)
    assert (info["url"], info["pending_update_count"]) == (URL, 2)
    assert info["last_error_message"] == "Connection failed: connect"
    assert info["last_error_date"] == pytest.approx(clock.now() - 62, abs=3)
    assert healed["pending_update_count"] == 0
    said = [record.getMessage() for record in caplog.records if "reader pushed" in record.getMessage()]
    assert len(said) == 2  # it does not work, it works again
    assert URL not in caplog.text


async def test_a_webhook_is_taken_away_and_its_reader_polls_again(clock: VirtualClock, hook: Hook) -> None:
    hook.answers = [RawAnswer(500, JSON, b"")] * 9
    async with sharing(clock, post=hook) as readers:
        await readers.call("setWebhook", "pushed", url=URL)
        readers.write("one")
        await clock.sleep(20)
        deleted = await readers.call("deleteWebhook", "pushed")
        before = len(hook.heard)
        polled = await readers.texts("pushed")
        await clock.sleep(100)
        info = (await readers.call("getWebhookInfo", "pushed")).json["result"]

    assert deleted.json["description"] == "Webhook was deleted"
    assert polled == ["one"]
    assert len(hook.heard) == before
    assert info == {"url": "", "has_custom_certificate": False, "pending_update_count": 1}


async def test_another_address_is_posted_to_at_once(clock: VirtualClock, hook: Hook) -> None:
    hook.answers = [RawAnswer(500, JSON, b"")] * 5
    async with sharing(clock, post=hook) as readers:
        await readers.call("setWebhook", url=URL)
        readers.write("one")
        await clock.sleep(16)
        began = clock.monotonic()
        await readers.call("setWebhook", url=f"{URL}/new", allowed_updates=ALL)
        while hook.heard[-1] != (f"{URL}/new", "one"):
            await clock.sleep(0.01)
        seconds = clock.monotonic() - began
        info = (await readers.call("getWebhookInfo")).json["result"]

    assert seconds < 0.1
    assert info["allowed_updates"] == sorted(ALL)


async def test_a_poll_that_waits_ends_when_its_reader_sets_a_webhook(clock: VirtualClock, hook: Hook) -> None:
    async with sharing(clock, post=hook) as readers:
        poll = readers.waiting("a")
        await clock.sleep(1)
        await readers.call("setWebhook", "a", url=URL)
        async with clock.timeout(1):
            answer = await poll

    assert answer.status == 409


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.5/hook",
        "https://bot.example/hook",
        "http://127.0.0.1@bot.example/hook",
        "http://bot.example#@127.0.0.1/",
        "http://[::ffff:10.0.0.5]/",
    ],
)
async def test_nobody_can_have_the_gateway_post_to_other_hosts(
    clock: VirtualClock, hook: Hook, url: str
) -> None:
    async with sharing(clock, post=hook, hosts=frozenset({"allowed.example"})) as readers:
        refused = await readers.call("setWebhook", url=url)
        allowed = await readers.call("setWebhook", url="https://allowed.example/hook")

    assert refused.status == 400
    assert "start it with --allow-webhook" in refused.error
    assert allowed.status == 200


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"url": "ftp://127.0.0.1/"}, "an HTTP URL must be provided"),
        ({"url": "http://127.0.0.1:99999/"}, "invalid webhook URL"),
        ({"url": URL, "secret_token": "not allowed!"}, "secret token contains unallowed characters"),
        ({"url": URL, "secret_token": ["a list"]}, "secret token contains unallowed characters"),
        ({"url": URL, "ip_address": "10.0.0.5"}, "neither a certificate nor an ip_address"),
    ],
)
async def test_a_webhook_that_cannot_be_meant_is_refused(
    clock: VirtualClock, hook: Hook, params: dict[str, Any], error: str
) -> None:
    async with sharing(clock, post=hook) as readers:
        answer = await readers.call("setWebhook", **params)

    assert (answer.status, error in answer.error) == (400, True)


async def test_a_call_in_the_answer_to_a_post_is_made(clock: VirtualClock, hook: Hook) -> None:
    def answer(**call: object) -> RawAnswer:
        return RawAnswer(200, JSON, msgspec.json.encode(call))

    hook.answers = [
        answer(method="sendMessage", chat_id=7, text="an answer"),
        answer(method="sendDocument", chat_id=7, document="file:///etc/passwd"),
        answer(method="getUpdates"),
        answer(method="no such method!"),
    ]
    async with sharing(clock, post=hook) as readers:
        await readers.call("setWebhook", url=URL)
        readers.write("one", "two", "three", "four", "five")
        await clock.sleep(10)

    assert hook.texts == ["one", "two", "three", "four", "five"]
    assert [call["text"] for call in readers.upstream("sendMessage")] == ["an answer"]
    assert readers.upstream("sendDocument") == []


async def test_a_webhook_survives_days_and_a_restart_of_the_gateway(
    clock: VirtualClock, hook: Hook, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    telegram, store = SimulatedTelegram(clock), tmp_path / "tidegate.db"
    async with sharing(clock, post=hook, telegram=telegram, store=store) as readers:
        await readers.call("setWebhook", "pushed", url=URL)
        readers.write("before")
        await clock.sleep(5)
    await clock.sleep(2 * FEED_SECONDS)
    async with sharing(clock, post=hook, telegram=telegram, store=store) as readers:
        readers.write("after")
        await clock.sleep(20)
        unknown = hook.texts
        await readers.call("getMe")  # now its token is known
        await clock.sleep(20)

    assert unknown == ["before"]
    assert "the token is not known here" in caplog.text
    assert hook.texts == ["before", "after"]
