"""Several readers of one bot's updates: each gets every update, and Telegram sees one that polls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.delivery.transport import RawAnswer
from tidegate.errors import StoreAwayError
from tidegate.events import UpdateReceived
from tidegate.gateway.shared_updates import SharingOptions
from tidegate.gateway.upstream_updates import WANTED_FOR
from tidegate.inbound.webhook_app import webhook_secret
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.update_feed import MemoryUpdateFeed
from unit.gateway.gateway_caller import TOKEN, Answer, SimulatedGateway, gateway

JSON = "application/json"
ALL = ["message", "chat_member", "callback_query"]


class Readers:
    """The readers of one bot, beside the people who write to it."""

    def __init__(self, simulated: SimulatedGateway) -> None:
        self.simulated = simulated
        self.updates = simulated.telegram.world.bot(TOKEN).updates  # type: ignore[union-attr]  # an open world
        self.log = simulated.telegram.request_log.log

    def write(self, *texts: str, chat: int = 7, kind: str = "message") -> None:
        for text in texts:
            self.updates.put(
                kind, {"chat": {"id": chat, "type": "private"}, "from": {"id": chat}, "text": text}
            )

    async def call(self, method: str, reader: str = "", **params: Any) -> Answer:  # noqa: ANN401
        return await self.simulated.call(method, params, prefix=reader and f"/reader/{reader}")

    async def read(self, reader: str = "", **params: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        answer = await self.call("getUpdates", reader, **params)
        assert answer.status == 200, answer.body
        result: list[dict[str, Any]] = answer.json["result"]
        return result

    async def texts(self, reader: str = "", **params: Any) -> list[str]:  # noqa: ANN401
        return [text_of(update) for update in await self.read(reader, **params)]

    def waiting(self, reader: str = "", **params: Any) -> "asyncio.Task[Answer]":  # noqa: ANN401
        return asyncio.create_task(self.call("getUpdates", reader, timeout=50, **params))

    def upstream(self, method: str = "getUpdates") -> list[dict[str, Any]]:
        """The parameters of the calls that Telegram got."""
        calls = [call for call in self.simulated.network.calls if call.method == method]
        return [
            msgspec.json.decode(b"".join(part for part in call.parts if isinstance(part, bytes)))
            for call in calls
        ]

    @property
    def conflicts(self) -> int:
        return sum(entry.status == 409 for entry in self.log)


def text_of(update: dict[str, Any]) -> str:
    content = next(value for key, value in update.items() if key != "update_id")
    return str(content["text"])


@asynccontextmanager
async def sharing(
    clock: VirtualClock,
    *,
    webhook_url: str | None = None,
    hosts: frozenset[str] = frozenset(),
    **more: Any,  # noqa: ANN401
) -> AsyncIterator[Readers]:
    async with gateway(clock, sharing=SharingOptions(webhook_url, hosts), **more) as simulated:
        yield Readers(simulated)
        await simulated.telegram.close()


async def test_without_the_option_a_reader_is_told_which_one_is_missing(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.call("getMe", prefix="/reader/stats")

    assert answer.status == 400
    assert "start it with --share-updates" in answer.error
    assert simulated.network.calls == []


async def test_each_reader_gets_every_update_and_telegram_sees_one_poll_at_a_time(
    clock: VirtualClock,
) -> None:
    async with sharing(clock) as readers:
        waiting = [readers.waiting(), readers.waiting("stats"), readers.waiting("audit")]
        await clock.sleep(1)
        readers.write("one")
        first = [[text_of(one) for one in (await poll).json["result"]] for poll in waiting]
        readers.write("two", "three")
        await clock.sleep(1)
        rest = [await readers.texts(name, offset=2) for name in ("", "stats", "audit")]
        again = await readers.texts("stats", offset=2)

    assert first == [["one"]] * 3
    assert rest == [["two", "three"]] * 3
    assert again == ["two", "three"]  # they were not confirmed
    assert readers.conflicts == 0
    assert [call.get("offset") for call in readers.upstream()][:2] == [None, None]
    assert max(call.get("offset", 0) for call in readers.upstream()) == 4


async def test_a_waiting_poll_is_answered_when_an_update_arrives_and_ends_with_its_time(
    clock: VirtualClock,
) -> None:
    async with sharing(clock) as readers:
        began = clock.monotonic()
        poll = readers.waiting()
        await clock.sleep(10)
        readers.write("hello")
        await poll
        arrived = clock.monotonic() - began
        nothing = await readers.read(offset=2, timeout=7)
        waited = clock.monotonic() - began - arrived

    assert arrived == pytest.approx(10, abs=0.01)
    assert nothing == []
    assert waited == pytest.approx(7, abs=0.01)


async def test_a_brief_poll_gets_what_telegram_holds(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        readers.write(*(str(number) for number in range(250)))
        began = clock.monotonic()
        first = await readers.texts(limit=100)
        waited = clock.monotonic() - began
        await clock.sleep(1)
        rest = [await readers.texts(offset=101), await readers.texts(offset=201)]

    assert first == [str(number) for number in range(100)]
    assert waited < 0.1
    assert [text for page in rest for text in page] == [str(number) for number in range(100, 250)]


async def test_a_bot_is_polled_while_somebody_reads_it(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        await readers.read("stats")
        await clock.sleep(2 * WANTED_FOR + 30)
        before = len(readers.upstream())
        readers.write("while nobody reads")
        await clock.sleep(600)
        asleep = len(readers.upstream())
        found = await readers.texts("stats")

    assert asleep == before  # Telegram keeps it
    assert found == ["while nobody reads"]


async def test_the_default_reader_goes_on_where_it_was_before_updates_were_shared(
    clock: VirtualClock,
) -> None:
    telegram = SimulatedTelegram(clock)
    async with gateway(clock, telegram=telegram) as simulated:
        before = Readers(simulated)
        before.write("one", "two")
        assert await before.texts() == ["one", "two"]  # confirmed by the next poll only
    async with sharing(clock, telegram=telegram) as readers:
        readers.write("three")
        found = await readers.texts(offset=3)

    assert found == ["three"]


async def test_of_two_polls_of_one_reader_the_older_one_ends_with_a_conflict(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with sharing(clock) as readers:
        older = readers.waiting("stats")
        await clock.sleep(1)
        newer, other = readers.waiting("stats"), readers.waiting("audit")
        await clock.sleep(1)
        ended = await older
        readers.write("hello")
        answers = [await newer, await other]

    assert ended.status == 409
    assert ended.error.startswith(
        "Conflict: terminated by other getUpdates request; make sure that only one bot"
    )
    assert "/reader/NAME/" in ended.error
    assert "/reader/stats/bot42:…/getUpdates from" in caplog.text
    assert [text_of(answer.json["result"][0]) for answer in answers] == ["hello", "hello"]


async def test_readers_have_kinds_of_their_own_and_telegram_is_asked_for_all_of_them(
    clock: VirtualClock,
) -> None:
    async with sharing(clock) as readers:
        usual = readers.waiting()
        await clock.sleep(1)
        some = readers.waiting("some", allowed_updates=ALL)
        await clock.sleep(1)
        readers.write("joined", kind="chat_member")
        [update] = (await some).json["result"]
        readers.write("hello")
        rest = [text_of(one) for one in (await usual).json["result"]]
        await clock.sleep(1)
        both = await readers.texts("some", offset=update["update_id"])
        cancelled = len(readers.simulated.network.cancelled)

    asked = readers.upstream()[-1]["allowed_updates"]
    assert "chat_member" in update
    assert rest == ["hello"]
    assert both == ["joined", "hello"]
    assert {"chat_member", "message", "poll_answer"} <= set(asked)
    assert "message_reaction" not in asked
    assert readers.upstream()[0]["allowed_updates"] == []  # Telegram's default
    assert cancelled == 1  # the poll that did not ask for enough


async def test_a_negative_offset_begins_at_the_end(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        readers.write("one", "two", "three")
        await readers.read()
        found = [
            await readers.texts("late", offset=-1),
            await readers.texts(offset=-2),
            await readers.texts(),
        ]

    assert found == [["three"], ["two", "three"], ["two", "three"]]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"allowed_updates": "message"}, "allowed_updates is a JSON list"),
        ({"allowed_updates": ["no kind!"]}, "allowed_updates names no kinds"),
    ],
)
async def test_a_poll_that_cannot_be_meant_is_refused(
    clock: VirtualClock, params: dict[str, Any], error: str
) -> None:
    async with sharing(clock) as readers:
        answer = await readers.call("getUpdates", **params)

    assert (answer.status, error in answer.error) == (400, True)


async def test_a_call_to_a_chat_whose_update_was_handed_out_is_a_reply_and_each_update_is_told_once(
    clock: VirtualClock,
) -> None:
    heard: list[UpdateReceived] = []
    async with sharing(clock) as readers:
        readers.simulated.gate.core.events.subscribe(UpdateReceived, heard.append)
        readers.write("hello", chat=1001)
        for name in ("", "stats"):
            await readers.read(name, offset=-1)
            await readers.read(name)
        replies = readers.simulated.app._replies  # noqa: SLF001
        answer = await readers.call("sendMessage", "stats", chat_id=1001, text="hi")

    assert replies.priority(42, 1001).name == "HIGH"  # type: ignore[arg-type]
    assert answer.status == 200
    assert [event.content()["message"]["text"] for event in heard] == ["hello"]


async def test_a_poll_ends_without_updates_when_the_server_stops(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        poll = readers.waiting()
        await clock.sleep(5)
        readers.simulated.app.drain()
        answer = await poll

    assert (answer.status, answer.json) == (200, {"ok": True, "result": []})


async def test_why_no_updates_come_is_told_to_readers(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        await readers.read()
        readers.simulated.network.down = True
        began = clock.monotonic()
        down = await readers.call("getUpdates", timeout=40)
        waited = clock.monotonic() - began
        readers.simulated.network.down = False
        readers.write("hello")
        up = await readers.texts(timeout=50)
        revoked = b'{"ok":false,"error_code":401,"description":"Unauthorized"}'
        readers.simulated.network.answers = [RawAnswer(401, JSON, revoked)] * 50
        await clock.sleep(40)
        refused = await readers.call("getUpdates", offset=2, timeout=40)

    assert down.status == 502
    assert waited == pytest.approx(40, abs=0.1)
    assert up == ["hello"]
    assert (refused.status, refused.error) == (401, "Unauthorized")


async def test_a_webhook_that_was_set_before_is_deleted_when_a_client_asks_for_it(
    clock: VirtualClock,
) -> None:
    async def nobody(*_: object) -> WebhookAnswer:
        raise OSError

    telegram = SimulatedTelegram(clock, post=nobody)
    await telegram.call(TOKEN, "setWebhook", {"url": "http://127.0.0.1/old"})
    async with sharing(clock, telegram=telegram) as readers:
        readers.write("hello")
        conflict = await readers.call("getUpdates", timeout=20)
        deleted = await readers.call("deleteWebhook")
        found = await readers.texts(timeout=50)
        await clock.sleep(1)
        again = await readers.call("deleteWebhook", "stats")

    assert conflict.status == 409
    assert "webhook is active" in conflict.error
    assert (deleted.status, found, again.status) == (200, ["hello"], 200)
    assert len(readers.upstream("deleteWebhook")) == 1


async def test_what_waits_is_dropped_for_the_reader_that_asks_for_it(clock: VirtualClock) -> None:
    async with sharing(clock) as readers:
        readers.write("old", "older")
        dropped = await readers.call("deleteWebhook", drop_pending_updates=True)
        readers.write("new")
        found = [await readers.texts(timeout=50), await readers.texts("stats", offset=-9)]

    assert dropped.json["result"] is True
    assert found == [["new"], ["new"]]


@pytest.mark.parametrize(
    ("given", "rest"),
    [("TRUE", ["new"]), (1, ["new"]), ("0", ["old", "new"]), ([1], ["old", "new"]), ({}, ["old", "new"])],
)
async def test_a_switch_of_any_type_is_read_as_by_telegram(
    clock: VirtualClock, given: object, rest: list[str]
) -> None:
    async with sharing(clock) as readers:
        readers.write("old")
        answer = await readers.call("deleteWebhook", drop_pending_updates=given)
        readers.write("new")
        await readers.texts(timeout=1)
        found = await readers.texts()

    assert answer.status == 200
    assert found == rest


async def test_a_gateway_that_starts_again_hands_out_what_was_not_confirmed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    telegram = SimulatedTelegram(clock)
    async with sharing(clock, telegram=telegram, store=tmp_path / "tidegate.db") as readers:
        await readers.read("stats")
        readers.write("one", "two")
        await clock.sleep(1)
        assert await readers.texts() == ["one", "two"]
        assert await readers.texts(offset=2) == ["two"]
    async with sharing(clock, telegram=telegram, store=tmp_path / "tidegate.db") as readers:
        readers.write("three")
        found = [await readers.texts("stats"), await readers.texts(offset=2)]
        await clock.sleep(1)
        rest = await readers.texts(offset=2)

    assert found[0][:2] == ["one", "two"]
    assert rest == ["two", "three"]
    assert readers.conflicts == 0


async def test_a_reader_that_loses_updates_is_named_in_the_log_once_a_minute(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.stores.memory.update_feed.MAX_FED_UPDATES", 10)
    async with sharing(clock) as readers:
        await readers.read("slow")
        for number in range(40):
            readers.write(str(number))
            await clock.sleep(1)
            await readers.read(offset=number + 1)
        await clock.sleep(60)

    lost = [
        record.getMessage()
        for record in caplog.records
        if "reader slow of bot 42 has lost" in record.getMessage()
    ]
    assert [line.split(" updates")[0].split()[-1] for line in lost] == ["1", "29"]


async def posted(
    readers: Readers, update: dict[str, Any], secret: str | None = None, bot: int = 42
) -> Answer:
    headers = {"x-telegram-bot-api-secret-token": webhook_secret(TOKEN) if secret is None else secret}
    path = f"/webhook/telegram/{bot}"
    return await readers.simulated.request(path, content=msgspec.json.encode(update), headers=headers)


def message(number: int) -> dict[str, Any]:
    return {"update_id": number, "message": {"chat": {"id": 7}, "text": f"#{number}"}}


async def test_telegram_posts_to_the_gateway_and_readers_poll(clock: VirtualClock) -> None:
    async with sharing(clock, webhook_url="https://bot.example/") as readers:
        readers.simulated.network.answers = [RawAnswer(200, JSON, b'{"ok":true,"result":true}')] * 2
        polls = [readers.waiting(), readers.waiting("stats")]
        await clock.sleep(1)
        status = [(await posted(readers, message(5))).status]
        first = [[text_of(one) for one in (await poll).json["result"]] for poll in polls]
        status += [(await posted(readers, message(number))).status for number in (4, 5)]
        rest = [await readers.texts(name, offset=6) for name in ("", "stats")]
        strangers = [await posted(readers, message(6), "wrong"), await posted(readers, message(6), bot=43)]
        broken = await posted(readers, {"message": {}})
        await readers.read("more", allowed_updates=ALL)
        await clock.sleep(1)

    assert status == [200] * 3
    assert first == [["#5"]] * 2
    assert rest == [["#4"]] * 2  # which came late, and once
    assert [one.status for one in strangers] == [401, 401]
    assert broken.status == 400
    asked = readers.upstream("setWebhook")
    assert [call["url"] for call in asked] == ["https://bot.example/webhook/telegram/42"] * 2
    assert asked[0]["secret_token"] == webhook_secret(TOKEN)
    assert (asked[0]["allowed_updates"], "chat_member" in asked[1]["allowed_updates"]) == ([], True)
    assert readers.upstream() == []


async def test_an_update_that_cannot_be_stored_is_not_confirmed(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreAwayError("Redis cannot be reached")

    async with sharing(clock, webhook_url="https://bot.example") as readers:
        readers.simulated.network.answers = [RawAnswer(200, JSON, b'{"ok":true,"result":true}')]
        await readers.read()
        with monkeypatch.context() as patched:
            patched.setattr(MemoryUpdateFeed, "append", away)
            refused = await posted(readers, message(5))
        repeated = await posted(readers, message(5))
        found = await readers.texts()

    assert (refused.status, repeated.status, found) == (503, 200, ["#5"])
