"""A field that Telegram would ignore is refused, and the one that may be meant is named."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import make_bot_api
from simulated import TOKEN
from tidegate import BadInputError, Tidegate
from tidegate.outbox.bot_api_methods import PARAMETERS
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

TYPOS = [
    ("parse_mod", "'parse_mode' may be meant"),
    ("dedup_kye", "'dedup_key' may be meant"),
    ("prioritty", "'priority' may be meant"),
    ("reply_markp", "'reply_markup' may be meant"),
    ("eta", "'not_before' may be meant"),
    ("countdown", "'delay' may be meant"),
    ("expires", "'expires_at' may be meant"),
    ("_defer_until", "'not_before' may be meant"),
    ("task_id", "'dedup_key' may be meant"),
    ("photo", r"'photo' is no parameter of sendMessage: see .* give it in extra: \{\"photo\": …\}"),
]


class RecordingWire(TelegramWire):
    """Keeps the parameters of every call."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(SimulatedTelegram(clock), clock)
        self.sent: list[Mapping[str, Any]] = []

    async def call(self, token: str, method: str, params: Mapping[str, Any], **how: Any) -> Any:  # noqa: ANN401
        self.sent.append(params)
        return await super().call(token, method, params, **how)


@pytest.fixture
async def wire(clock: VirtualClock) -> RecordingWire:
    return RecordingWire(clock)


@pytest.fixture
async def gate(clock: VirtualClock, wire: RecordingWire) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=wire)
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


@pytest.mark.parametrize(("name", "reason"), TYPOS)
async def test_a_misspelt_field_is_refused_by_every_way_in(gate: Tidegate, name: str, reason: str) -> None:
    typo: dict[str, Any] = {name: "x"}

    with pytest.raises(BadInputError, match=reason):
        await gate.send(chat_id=7, text="x", **typo)
    with pytest.raises(BadInputError, match=reason):
        await gate.send_many([{"chat_id": 7, "text": "x", **typo}])
    with pytest.raises(BadInputError, match=reason):
        await gate.send_many([{"chat_id": 7, "text": "x"}], **typo)
    with pytest.raises(BadInputError, match=reason):
        await gate.send_or_queue(chat_id=7, text="x", **typo)
    with pytest.raises(BadInputError, match=reason):
        await gate.broadcast("news", [7], "x", **typo)
    assert (await gate.stats()).waiting == 0


async def test_a_misspelt_parameter_of_a_direct_call_is_refused(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="'parse_mod' is no parameter of sendMessage: 'parse_mode'"):
        await gate.call("sendMessage", {"chat_id": 7, "text": "x", "parse_mod": "HTML"})
    with pytest.raises(BadInputError, match="'dedup_key' is no parameter of sendMessage: see"):
        await gate.call("sendMessage", {"chat_id": 7, "text": "x", "dedup_key": "k"})


async def test_each_method_has_its_own_parameters(gate: Tidegate) -> None:
    await gate.send(chat_id=7, method="sendPhoto", photo="file_id", caption="x")

    with pytest.raises(BadInputError, match="'text' is no parameter of sendPhoto"):
        await gate.send(chat_id=7, method="sendPhoto", photo="file_id", text="x")


async def test_a_method_that_is_not_known_takes_any_parameter(gate: Tidegate) -> None:
    fields: dict[str, Any] = {"hologram": "file_id"}
    typo: dict[str, Any] = {"dedup_keys": "k"}
    ticket = await gate.send(chat_id=7, method="sendHologram", **fields)

    record = await gate.outbox.find(ticket.id)
    assert record is not None
    assert record.message.params == fields
    with pytest.raises(BadInputError, match="'dedup_key' may be meant"):
        await gate.send(chat_id=7, method="sendHologram", **fields, **typo)


async def test_a_parameter_that_is_not_known_yet_is_sent_as_extra(
    gate: Tidegate, wire: RecordingWire
) -> None:
    ticket = await gate.send(chat_id=7, text="x", extra={"sparkle": True})
    async with gate.worker():
        await ticket.delivered(timeout=5)
    await gate.call("sendMessage", {"chat_id": 7, "text": "y"}, extra={"sparkle": 2})

    assert [params["sparkle"] for params in wire.sent] == [True, 2]


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ([1], "extra is a mapping of parameters: got list"),
        ({5: 1}, "key 5 of type int"),
        ({"chat_id": 8}, "chat_id is not given in extra"),
        ({"method": "sendDice"}, "method is not given in extra"),
        ({"sparkle": object()}, "sparkle: a object cannot be sent as JSON"),
    ],
)
async def test_bad_extra_parameters_are_refused(gate: Tidegate, extra: Any, reason: str) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match=reason):
        await gate.send(chat_id=7, text="x", extra=extra)


def test_the_known_parameters_are_those_of_the_installed_aiogram() -> None:
    for path, text in make_bot_api.sources().items():
        assert path.read_text() == text, "run make bot-api"
    assert "parse_mode" in PARAMETERS["sendMessage"].split()
