"""The samples of the how-tos on limited APIs and on payments, run unchanged against simulators."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aiohttp import web

from simulated import TOKEN
from system.snippets import HOWTOS, blocks, read
from tidegate.clock import Clock
from tidegate.polling import BatchPoller, DeltaPoller
from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.shop import Shop
from tidegate.sim.telegram.http import TelegramServer
from tidegate.upstream.request_log import RequestPrinter

PAYMENTS, CALLS = "wait-for-payments.md", "call-a-limited-api.md"
ORDERS: Final = 8
CUSTOMER = {"id": 17, "name": "Ann"}
LOADED: Final = (BatchPoller, DeltaPoller, RequestPrinter)  # or a page would read files while the loop runs


class Page:
    """A how-to and the names that its blocks have made so far."""

    def __init__(self, name: str, shown: list[str], **names: object) -> None:
        self._name, self._shown = name, shown
        self.names: dict[str, Any] = names

    def block(self, word: str) -> str:
        """The first that has this word."""
        return next(block for block in self._shown if word in block)

    async def run(self, code: str) -> None:
        made = eval(read(code, self._name), self.names)  # noqa: S307  (our own docs)
        if made is not None:
            await made


@pytest.fixture
async def shop() -> AsyncIterator[SimpleNamespace]:
    """The table that `tidegate sim nocodb` has, over HTTP."""
    noco = SimulatedNocoDb(Clock())
    made = Shop(noco, ORDERS)
    async with NocoDbServer(noco) as server:
        yield SimpleNamespace(noco=noco, table=made.table, url=server.url)


async def page(name: str, shop: SimpleNamespace, **names: object) -> Page:
    shown = await asyncio.to_thread(blocks, name)
    return Page(name, shown, NOCODB_URL=shop.url, NOCODB_TOKEN="any", ORDERS=shop.table, **names)


async def until(came: Callable[[], bool], within: float = 10.0) -> None:
    clock = Clock()
    end = clock.monotonic() + within
    while not came():
        assert clock.monotonic() < end, "it has not happened"
        await clock.sleep(0.01)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
async def test_who_waits_is_told_by_deltas_and_by_batches_and_is_restored_from_the_table(
    shop: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ann = SimpleNamespace(chat=SimpleNamespace(id=1001))
    payments = await page(PAYMENTS, shop, BOT=42, order_id="1", message=ann)
    async with TelegramServer() as telegram:

        def told() -> list[tuple[object, str]]:
            return [(one.chat_id, one.text) for one in telegram.telegram.request_log.log]

        await payments.run(payments.block("DeltaPoller("))
        gate = payments.names["gate"]
        gate.add_bot(TOKEN, api_url=telegram.url)
        async with gate, gate.worker():
            await payments.run(payments.block("payments.subscribe("))
            shop.noco.pay(shop.table, 1)
            await until(lambda: told() == [(1001, "Order 1 is paid. Thank you!")])

        before, _, _ = payments.block("DeltaPoller(").partition("payments = DeltaPoller(")
        await payments.run(before)  # started again, with batches
        await payments.run(payments.block("BatchPoller("))
        gate = payments.names["gate"]
        gate.add_poller(payments.names["payments"])
        gate.add_bot(TOKEN, api_url=telegram.url)
        shop.noco.delete(shop.table, [1])
        shop.noco.pay(shop.table, 2)
        async with gate, gate.worker():
            await payments.run(payments.block("payments.restore("))
            await until(lambda: told()[1:] == [(1002, "Order 2 is paid. Thank you!")])

    shown = capsys.readouterr().out
    assert f"Restoring {ORDERS - 1} users in state 'awaiting_payment':" in shown
    assert "✓ User 1003 (@user3) - record 3" in shown


@pytest.mark.usefixtures("workplace")
async def test_records_are_made_found_and_paged_through(shop: SimpleNamespace) -> None:
    limited = await page(CALLS, shop, email="o'brien, (x)@example.com")
    await limited.run("from tidegate import Tidegate\ngate = Tidegate('memory://')")
    async with limited.names["gate"]:
        await limited.run(limited.block("orders.create("))

    names = limited.names
    assert names["order_id"] == ORDERS + 1
    assert names["page"].rows == []  # it is not paid
    assert [row["Title"] for row in names["rows"]] == ["Coffee", "Cocoa", "Tea"] * 2 + ["Coffee", "Cocoa"]


@pytest.fixture
async def crm() -> AsyncIterator[SimpleNamespace]:
    """A service with customers, which notes what it is asked."""
    asked: list[tuple[str, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.path_qs, request.headers["Authorization"]))
        return web.json_response(CUSTOMER)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{runner.addresses[0][1]}", asked=asked)
    await runner.cleanup()


@pytest.mark.usefixtures("workplace")
async def test_the_client_asks_and_tells_its_story_as_the_page_shows_it(
    crm: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = Page(CALLS, await asyncio.to_thread(blocks, CALLS), CRM_TOKEN="secret")
    client = limited.block("gate.upstream(").replace("https://crm.example.com", crm.url)
    made, _, used = client.partition("\nasync with gate:")

    await limited.run(made)
    await limited.run(limited.block("RequestPrinter("))
    await limited.run("async with gate:" + used)

    assert crm.asked == [
        ("GET", "/api/customers/17", "Bearer secret"),
        ("GET", "/api/notes?customer=17&limit=10", "Bearer secret"),
        ("POST", "/api/notes", "Bearer secret"),
    ]
    assert limited.names["customer"] == CUSTOMER
    assert shape(capsys.readouterr().out).startswith(shape(await asyncio.to_thread(story)))


def story() -> str:
    """The output that the page shows."""
    shown = re.search(r"^```\n(📤.*?)^```$", (HOWTOS / CALLS).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert shown is not None
    return shown[1]


def shape(text: str) -> str:
    """The output without times, sizes and speeds."""
    return re.sub(r"\d+", "0", text)


@pytest.mark.parametrize("name", [PAYMENTS, CALLS])
def test_what_the_pages_show_is_python(name: str) -> None:
    for block in blocks(name):
        read(block, name)
