"""Calls that a client hands over: accepted at once, with a result of the method's own type and a ticket."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import telegram
from aiogram import methods
from aiogram.methods import TelegramMethod
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tidegate.access import Role
from tidegate.gateway.answers import ApiRefusal
from tidegate.gateway.directives import parse_directives
from tidegate.model import BotId, Priority, State, TicketId
from tidegate.outbox.bot_api_methods import PARAMETERS
from tidegate.outbox.bot_api_results import RESULTS
from tidegate.sim.telegram import Person
from tidegate.sim.virtual_time import VirtualClock
from unit.gateway.gateway_caller import TELEGRAM, TOKEN, SimulatedGateway, form, gateway

MESSAGE = {"chat_id": 1001, "text": "hi"}


async def delivered(simulated: SimulatedGateway, ticket: str) -> Any:  # noqa: ANN401  (Telegram's)
    async with simulated.clock.timeout(60.0):
        record = await simulated.gate.outbox.settled(TicketId(ticket))
    assert record.state is State.DELIVERED, record
    return record


async def test_a_queued_call_is_answered_at_once_and_delivered_in_its_turn(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        answers = [await simulated.call("sendMessage", MESSAGE, directives="queue") for _ in range(3)]
        at_once = clock.monotonic()
        records = [await delivered(simulated, answer.ticket) for answer in answers]

    assert at_once == 0.0
    message = answers[0].json["result"]
    assert (message["message_id"], message["chat"]["id"], message["text"]) == (0, 1001, "hi")
    assert len({record.result["message_id"] for record in records}) == 3
    assert clock.monotonic() >= 2.0


TYPES: dict[str, type[TelegramMethod[Any]]] = {
    kind.__api_method__: kind for kind in vars(methods).values() if hasattr(kind, "__api_method__")
}
PTB_PARSERS: dict[str, Callable[[Any], object]] = {
    "true": lambda result: result,  # PTB passes it on as it is
    "message": lambda result: telegram.Message.de_json(result, None),
    "messages": lambda result: telegram.Message.de_list(result, None),
    "id": lambda result: telegram.MessageId.de_json(result, None),
    "ids": lambda result: telegram.MessageId.de_list(result, None),
}


@pytest.mark.parametrize("form_of", RESULTS)
async def test_the_answer_to_every_queued_method_parses_as_its_own_type(
    clock: VirtualClock, form_of: str
) -> None:
    params = {"chat_id": -1001234567890, "text": "hi", "message_ids": [1, 2], "media": [{}, {}]}
    async with gateway(clock) as simulated:
        answers = {
            method: await simulated.call(method, params_of(method, params), directives="queue; delay=60")
            for method in RESULTS[form_of].split()
        }

    for method, answer in answers.items():
        assert answer.status == 200, (method, answer.body)
        result = answer.json["result"]
        by_aiogram = TypeAdapter(TYPES[method].__returning__).validate_python(result)
        by_ptb = PTB_PARSERS[form_of](result)
        assert isinstance(by_aiogram, list) == (form_of in {"messages", "ids"})
        for parsed in (by_aiogram, by_ptb):
            for one in parsed if isinstance(parsed, list | tuple) else [parsed]:
                assert one is True or getattr(one, "message_id", None) == 0, method
        assert not isinstance(by_aiogram, list) or len(by_aiogram) == len(by_ptb) == 2  # type: ignore[arg-type]


def params_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    known = PARAMETERS[method].split()
    return {name: value for name, value in params.items() if name in known}


async def test_the_header_sets_priority_time_and_keys(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        header = "queue; priority=low; dedup=order-17; delay=30; expires=600; on-unknown=park"
        first = await simulated.call("sendMessage", MESSAGE, directives=header)
        again = await simulated.call("sendMessage", MESSAGE, directives=header)
        record = await simulated.gate.outbox.find(TicketId(first.ticket))

    assert first.ticket == again.ticket
    assert record is not None
    message = record.message
    assert (message.priority, message.dedup_key, message.on_unknown) == (Priority.LOW, "order-17", "park")
    assert message.not_before == pytest.approx(simulated.clock.now() + 30)
    assert message.expires_at == pytest.approx(simulated.clock.now() + 600)


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        ("quue", "'quue' is not known"),
        ("queue; priority=urgent", "priority 'urgent' is not known: choose one of high, normal, low"),
        ("queue; delay=soon", "delay=soon is not a number of seconds"),
        ("queue; delay=-1", "not a number of seconds"),
        ("queue; delay=nan", "not a number of seconds"),
        ("queue; dedup=", "'dedup=' is not known"),
        ("dedup=x", "dedup is for a call that is queued"),
        (";;", "'' is not known"),
        ("queue; dedup=a; dedup=b", "dedup is given twice"),
        ("queue; priority=low; Priority=high", "priority is given twice"),
        ("queue=1", "'queue=1' is not known"),
        ("queue; on-unknown=hope", "'on-unknown=hope' is not known"),
        ("queue" + ";" * 2000, "more than 1,024 characters"),
    ],
)
async def test_a_header_that_cannot_be_meant_is_refused(clock: VirtualClock, header: str, hint: str) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.call("sendMessage", MESSAGE, directives=header)
        stats = await simulated.gate.stats()

    assert answer.status == 400
    assert hint in answer.error
    assert (stats.waiting, stats.direct) == (0, 0)


async def test_two_headers_are_refused_as_one_would_be_ignored(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        twice = [(b"x-tidegate", b"queue"), (b"x-tidegate", b"queue; priority=low")]
        answer = await simulated.call("sendMessage", MESSAGE, more_headers=twice)

    assert (answer.status, "X-Tidegate is given 2 times" in answer.error) == (400, True)


PARTS = {
    "queue": ("queue", True),
    "urgent": ("urgent", True),
    "priority=low": ("priority", Priority.LOW),
    "Priority = HIGH": None,  # priorities are words in lower case
    "dedup=a b=c": ("dedup_key", "a b=c"),
    "coalesce=é": ("coalesce_key", "é"),
    "delay=1.5": ("delay", 1.5),
    "expires=60": ("expires_in", 60.0),
    "on-unknown=park": ("on_unknown", "park"),
    "delay=1e999": None,
    "later": None,
    "": None,
}


@given(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=5), st.sampled_from(["; ", ";", " ;\t"]))
def test_a_header_means_all_of_its_parts_or_is_refused(parts: list[str], separator: str) -> None:
    header = separator.join(parts).encode("latin-1")
    meant = [PARTS[part] for part in parts]
    known = dict(pair for pair in meant if pair is not None)
    is_sound = None not in meant and len(known) == len(meant)
    has_home = "queue" in known or "urgent" in known or known.keys() <= {"priority"}
    if not (is_sound and has_home):
        with pytest.raises(ApiRefusal) as refused:
            parse_directives(header)
        assert (refused.value.code, "X-Tidegate" in refused.value.text) == (400, True)
        return
    found = parse_directives(header)
    flags = {"queue": found.queue, "urgent": found.urgent, "priority": found.priority}
    assert {name: value for name, value in flags.items() if value} | dict(found.options) == known


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_key_in_any_letters_is_the_one_that_other_programs_give(encoding: str) -> None:
    found = parse_directives("queue; dedup=café".encode(encoding))
    cyrillic = parse_directives("queue; dedup=заказ-17".encode())

    assert dict(found.options)["dedup_key"] == "café"
    assert dict(cyrillic.options)["dedup_key"] == "заказ-17"


@given(st.binary(max_size=60))
def test_whatever_a_header_holds_is_understood_or_refused(header: bytes) -> None:
    with suppress(ApiRefusal):
        parse_directives(header)


@pytest.mark.parametrize(
    ("method", "params", "hint"),
    [
        ("getChat", {"chat_id": 1001}, "getChat cannot be queued"),
        ("getMe", {}, "getMe cannot be queued"),
        ("newMethod", {"chat_id": 1}, "newMethod cannot be queued"),
        ("sendMessage", {"text": "hi"}, "sendMessage without a chat_id cannot be queued"),
        ("sendMessage", {"chat_id": "x y", "text": "hi"}, "is no chat"),
        ("sendMessage", {"chat_id": 1001}, "text is empty"),
        ("editMessageText", {"inline_message_id": "x", "text": "hi"}, "without a chat_id"),
    ],
)
async def test_what_cannot_be_queued_is_refused_and_nothing_is_stored(
    clock: VirtualClock, method: str, params: dict[str, Any], hint: str
) -> None:
    async with gateway(clock) as simulated:
        answer = await simulated.call(method, params, directives="queue")
        stats = await simulated.gate.stats()

    assert answer.status == 400
    assert hint in answer.error
    assert stats.waiting == 0


async def test_parameters_that_are_newer_than_tidegate_are_queued_too(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        params = {**MESSAGE, "future_parameter": {"a": 1}}
        answer = await simulated.call("sendMessage", params, directives="queue")
        record = await simulated.gate.outbox.find(TicketId(answer.ticket))

    assert record is not None
    assert record.message.params["future_parameter"] == {"a": 1}


async def test_uploads_are_queued_with_their_files_in_place(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        content, headers = form({"chat_id": "1001", "caption": "a photo"}, {"photo": b"\x89PNG" * 100})
        path = f"/bot{TOKEN}/sendPhoto"
        photo = await simulated.request(path, content=content, headers=headers | {"x-tidegate": "queue"})
        media = '[{"type":"photo","media":"attach://a"},{"type":"video","media":"attach://b","thumbnail":"attach://c"}]'
        content, headers = form({"chat_id": "1001", "media": media}, {"a": b"1", "b": b"2", "c": b"3"})
        path = f"/bot{TOKEN}/sendMediaGroup"
        album = await simulated.request(
            path, content=content, headers=headers | {"x-tidegate": "queue; delay=9"}
        )
        kept = [await simulated.gate.outbox.find(TicketId(answer.ticket)) for answer in (photo, album)]

    assert kept[0] is not None
    assert kept[1] is not None
    assert kept[0].message.params["photo"].content == b"\x89PNG" * 100
    assert kept[0].message.params["photo"].name == "photo.bin"
    items = kept[1].message.params["media"]
    assert [item["media"].content for item in items] == [b"1", b"2"]
    assert items[1]["thumbnail"].content == b"3"
    assert kept[1].message.params.keys() == {"media"}


async def test_urgent_needs_the_role_admin_and_waits_for_no_slot(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        simulated.gate.add_bot(TOKEN, api_url=TELEGRAM)
        own = await simulated.call("sendMessage", MESSAGE, directives="urgent")
        operator = (await simulated.access.create_token("o", Role.OPERATOR)).secret
        low = await simulated.call("sendMessage", MESSAGE, directives="queue; urgent", token=f"42:{operator}")
        admin = f"42:{(await simulated.access.create_token('a', Role.ADMIN)).secret}"
        for _ in range(3):
            await simulated.call("sendMessage", MESSAGE, directives="queue")
        began = clock.monotonic()
        urgent = await simulated.call("sendMessage", MESSAGE, directives="urgent", token=admin)
        free = await simulated.call("getMe", directives="urgent", token=admin)

    assert (own.status, low.status) == (403, 403)
    assert (
        own.error
        == "Forbidden: urgent needs an access token of the role admin, as in /bot42:tg_…/sendMessage"
    )
    assert urgent.status == 200
    assert urgent.json["result"]["message_id"] > 0
    assert free.json["result"]["id"] == 42
    assert clock.monotonic() - began < 0.5


async def test_an_urgent_call_that_telegram_rejects_gets_its_error_unchanged(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        bot = simulated.telegram.world.bot(TOKEN)
        assert bot is not None
        Person(simulated.telegram, bot, 1001).blocks()
        admin = f"42:{(await simulated.access.create_token('a', Role.ADMIN)).secret}"
        paced = await simulated.call("sendMessage", MESSAGE)
        urgent = await simulated.call("sendMessage", MESSAGE, directives="urgent", token=admin)

    assert urgent.status == paced.status == 403
    assert urgent.json == paced.json


async def test_a_pause_holds_what_is_queued_and_not_what_a_client_waits_for(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        await simulated.gate.outbox.pause(BotId(42))
        queued = await simulated.call("sendMessage", {**MESSAGE, "chat_id": 7}, directives="queue")
        paced = await simulated.call("sendMessage", MESSAGE)
        await clock.sleep(60.0)
        held = await simulated.gate.outbox.find(TicketId(queued.ticket))
        await simulated.gate.outbox.resume(BotId(42))
        await delivered(simulated, queued.ticket)

    assert paced.status == 200
    assert held is not None
    assert held.state is State.QUEUED


@pytest.mark.parametrize("paid", ["true", "True", "1", "False", "false", "0"])
async def test_switches_of_forms_mean_for_limits_what_they_mean_for_telegram(
    clock: VirtualClock, paid: str
) -> None:
    async with gateway(clock, max_wait=60.0) as simulated:
        path, headers = f"/bot{TOKEN}/sendMessage", {"content-type": "application/x-www-form-urlencoded"}
        for chat in range(40):
            content = f"chat_id={1000 + chat}&text=x&allow_paid_broadcast={paid}".encode()
            how = {} if chat % 2 else {"x-tidegate": "queue"}
            answer = await simulated.request(path, content=content, headers=headers | how)
            assert answer.status == 200
        await simulated.gate.drained()

    assert (clock.monotonic() < 0.5) == (paid.lower() in {"true", "1"})
    assert simulated.refused == 0


async def test_an_album_that_a_form_queues_takes_a_slot_for_each_item(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        media = '[{"type":"photo","media":"x"},{"type":"photo","media":"y"}]'
        content, headers = form({"chat_id": "-1001", "media": media}, {})
        for _ in range(11):
            path = f"/bot{TOKEN}/sendMediaGroup"
            await simulated.request(path, content=content, headers=headers | {"x-tidegate": "queue"})
        await simulated.gate.drained()

    assert clock.monotonic() > 59.0  # 20 a minute: the eleventh has to wait
    assert simulated.refused == 0


async def test_clients_that_upload_slowly_do_not_hold_up_what_others_queue(clock: VirtualClock) -> None:
    async with gateway(clock) as simulated:
        await simulated.call("getMe")
        content, headers = form({"chat_id": "1001"}, {"document": b"x" * 100})
        queue = headers | {"x-tidegate": "queue"}
        path = f"/bot{TOKEN}/sendDocument"
        slow = [
            asyncio.create_task(
                simulated.request(path, content=[content[:-1], 5.0, content[-1:]], headers=queue)
            )
            for _ in range(10)
        ]
        await clock.sleep(0.5)
        began = clock.monotonic()
        quick = await simulated.call("sendMessage", MESSAGE, directives="queue")
        waited = clock.monotonic() - began
        answers = await asyncio.gather(*slow)

    assert (quick.status, waited) == (200, 0.0)
    assert {answer.status for answer in answers} == {200}


async def test_queued_and_paced_calls_of_a_bot_share_its_limits(clock: VirtualClock) -> None:
    async with gateway(clock, max_wait=60.0) as simulated:
        for number in range(60):
            await simulated.call("sendMessage", {"chat_id": 2000 + number, "text": "x"}, directives="queue")
        answers = await asyncio.gather(
            *(simulated.call("sendMessage", {"chat_id": 3000 + number, "text": "x"}) for number in range(30))
        )
        await simulated.gate.drained()

    assert {answer.status for answer in answers} == {200}
    assert simulated.refused == 0
    assert clock.monotonic() > 1.9
