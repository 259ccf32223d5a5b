"""The webhook app of a real gate: started by a server or by the app that mounts it, once at a time."""

import asyncio
from typing import Any

import pytest

from tidegate import Tidegate
from tidegate.errors import BadInputError, NotTheSenderError
from tidegate.inbound import handlers
from tidegate.inbound.inbox import InboxItem, bot_source, hook_source
from tidegate.inbound.webhook_app import WebhookApp, webhook_secret
from tidegate.sim.virtual_time import VirtualClock
from unit.inbound.http_caller import TOKEN, Reply, call, secret_header, update

LATER = "43:AAbbccddeeffgghhiijjkkllmmnnoopp"
Handled = list[tuple[int, int]]


class Served:
    """A gate with a bot, and what its handler got."""

    def __init__(self, clock: VirtualClock) -> None:
        self.gate = Tidegate("memory://", clock=clock)
        self.gate.add_bot(TOKEN)
        self.handled: Handled = []
        self.gate.on_update(self._handle)
        self.app = self.gate.asgi()

    async def _handle(self, bot: int, update: dict[str, Any]) -> None:
        self.handled.append((bot, update["update_id"]))

    async def post(self, number: int, token: str = TOKEN) -> Reply:
        path = f"/webhook/telegram/{token.partition(':')[0]}"
        return await call(self.app, path, update(number), secret_header(webhook_secret(token)))


@pytest.fixture
async def served(clock: VirtualClock) -> Served:
    return Served(clock)


async def test_nothing_is_taken_that_nobody_would_handle(served: Served, clock: VirtualClock) -> None:
    @served.gate.hook("pay", "0123456789abcdef")
    async def handle(_: object) -> None: ...

    async with served.gate:  # by the app that mounts it, and does not start it
        assert (await served.post(1)).status == 503
        assert (await call(served.app, "/hooks/pay")).status == 503
        assert (await call(served.app, "/readyz", method="GET")).status == 503

        await served.app.start()
        assert (await served.post(1)).status == 200
        assert (await call(served.app, "/hooks/pay")).status == 401
        await clock.sleep(1)
        await served.app.stop()
        assert (await served.post(2)).status == 503
    assert served.handled == [(42, 1)]


async def test_it_can_be_started_again(served: Served, clock: VirtualClock) -> None:
    for number in (1, 2):
        await served.app.start()
        assert (await served.post(number)).status == 200
        await clock.sleep(1)
        await served.app.stop()
        assert not served.gate.is_open
    assert served.handled == [(42, 1), (42, 2)]


async def test_a_bot_that_comes_later_is_served(served: Served, clock: VirtualClock) -> None:
    await served.app.start()
    assert (await served.post(1, LATER)).status == 401
    served.gate.add_bot(LATER)
    assert (await served.post(1, LATER)).status == 200
    await clock.sleep(1)
    await served.app.stop()
    assert served.handled == [(43, 1)]


async def test_a_handler_that_comes_later_handles(clock: VirtualClock) -> None:
    gate = Tidegate("memory://", clock=clock)
    app: WebhookApp = gate.asgi()
    await app.start()

    @gate.hook("pay", "0123456789abcdef")
    async def handle(_: object) -> None: ...

    assert gate.core.handler_registry.has_handler(hook_source("pay"))
    await app.stop()


async def test_a_second_server_of_a_gate_is_refused_and_harms_nothing(
    served: Served, clock: VirtualClock
) -> None:
    second, before = served.gate.asgi(), asyncio.all_tasks()
    await served.app.start()
    with pytest.raises(BadInputError, match="served already"):
        await second.start()
    await second.stop()
    assert (await served.post(1)).status == 200
    await clock.sleep(1)
    await served.app.stop()
    assert (served.handled, served.gate.is_open) == ([(42, 1)], False)
    assert asyncio.all_tasks() == before


async def test_it_waits_to_take_over_and_can_be_stopped_meanwhile(
    served: Served, clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, free_at = served.gate.core.start, 3.5

    async def refuse() -> None:
        if clock.monotonic() < free_at:
            raise NotTheSenderError("process 7 sends for this store")
        await start()

    monkeypatch.setattr(served.gate.core, "start", refuse)
    given_up = asyncio.create_task(served.app.start())
    await clock.sleep(1.5)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert clock.monotonic() == 1.5
    caplog.clear()

    await served.app.start()
    assert clock.monotonic() == 3.5
    assert [record.getMessage() for record in caplog.records] == [
        "process 7 sends for this store. This one waits to take over"
    ]
    await served.app.stop()


async def test_an_event_or_update_that_cannot_be_decoded_is_parked_as_unreadable_and_others_are_handled(
    served: Served, clock: VirtualClock
) -> None:
    @served.gate.hook("pay", "0123456789abcdef")
    async def handle(_: object) -> None:
        raise AssertionError("there is no event")

    await served.app.start()
    broken = [InboxItem(source, "x", "1", b"\xc1{") for source in (bot_source(42), hook_source("pay"))]
    await served.gate.inbox.accept(broken)
    assert (await served.post(1)).status == 200
    await clock.sleep(1)  # no attempts: they would take longer

    parked = await served.gate.inbox.parked()

    assert {one.item.source for one in parked} == {"bot:42", "hook:pay"}
    assert all(one.reason.startswith("unreadable: ") for one in parked)
    assert served.handled == [(42, 1)]
    await served.app.stop()


async def test_a_server_whose_one_bot_is_flooded_is_ready_for_the_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.gate.add_bot(LATER)
    await served.app.start()
    monkeypatch.setattr(handlers, "MAX_WAITING_ITEMS", 10)
    flood = [InboxItem(bot_source(99), str(number), "1", b"{}") for number in range(10)]
    await served.gate.inbox.accept(flood)

    assert (await call(served.app, "/readyz", method="GET")).status == 200

    await served.gate.inbox.accept([InboxItem(bot_source(98), *one) for one in _some(10)])
    assert (await call(served.app, "/readyz", method="GET")).status == 503
    await served.app.stop()


def _some(count: int) -> list[tuple[str, str, bytes]]:
    return [(str(number), "1", b"{}") for number in range(count)]
