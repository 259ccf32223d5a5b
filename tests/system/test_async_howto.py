"""The samples of the how-to from requests to async: they answer, and a silent server ends in the timeout."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from system.snippets import blocks, read
from tidegate import Tidegate
from tidegate.clock import Clock

PAGE = "from-requests-to-async.md"
AWAY = "The bank does not answer. Please look again in a minute."
# The page's timeouts in seconds, as they are in the tests.
SHORTER = {
    'timeout=5, name="bank"': 'timeout=1, name="bank"',
    "asyncio.timeout(10)": "asyncio.timeout(2)",
    "total=10, sock_connect=5": "total=1, sock_connect=1",
    "timeout=(5, 10)": "timeout=(1, 1)",
    "command_timeout=5": "command_timeout=1",
}
MARGIN = 10  # seconds: a busy machine, and far from for ever


class Bank:
    """Answers, unless it is silent: then it takes a request, and says nothing."""

    def __init__(self) -> None:
        self.is_silent = False
        self.url = ""
        self.charges: list[int] = []
        self.closing = asyncio.Event()

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        if self.is_silent:
            await self.closing.wait()
        if request.path == "/rates":
            return web.json_response({"USD": 1.08})
        self.charges.append(body["user"])
        return web.json_response({"state": "paid"})


@pytest.fixture
async def bank() -> AsyncIterator[Bank]:
    bank, app = Bank(), web.Application()
    app.router.add_route("*", "/{path:.*}", bank.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bank.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield bank
    bank.closing.set()
    await runner.cleanup()


def post(url: str, *, json: object, timeout: tuple[float, float]) -> SimpleNamespace:
    """`requests.post`, as far as the page uses it: blocks its thread, and raises when the time is over."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout[1])
    try:
        connection.request("POST", parts.path, _json(json), {"Content-Type": "application/json"})
        body = connection.getresponse().read()
    except OSError as error:
        raise ReadTimeoutError from error
    finally:
        connection.close()
    return SimpleNamespace(json=lambda: _decoded(body))


_json, _decoded = json.dumps, json.loads


class ReadTimeoutError(Exception):
    """As of requests."""


REQUESTS = SimpleNamespace(post=post, RequestException=ReadTimeoutError)


async def sample(word: str, **names: object) -> dict[str, Any]:
    """Run the block of the page that has this word; return the names that it makes."""
    shown = await asyncio.to_thread(blocks, PAGE)
    block = next(block for block in shown if word in block).replace("import requests\n", "")
    for theirs, ours in SHORTER.items():
        block = block.replace(theirs, ours)
    made: dict[str, Any] = {"requests": REQUESTS, **names}
    exec(read(block, PAGE), made)  # noqa: S102  (our own docs)
    return made


async def test_a_call_through_the_gate_answers_and_a_silent_bank_ends_in_the_timeout(bank: Bank) -> None:
    gate = Tidegate("memory://")
    made = await sample("gate.upstream(BANK", gate=gate, BANK=bank.url, BANK_TOKEN="any")
    async with gate, Clock().timeout(MARGIN):
        assert await made["charge"](1001) == "paid"
        bank.is_silent = True
        assert await made["charge"](1001) == AWAY
    assert bank.charges == [1001]


async def test_a_call_with_aiohttp_answers_and_a_silent_server_ends_in_the_timeout(bank: Bank) -> None:
    made = await sample("aiohttp.ClientTimeout", BANK=bank.url)
    async with Clock().timeout(MARGIN):
        assert await made["show_rates"]() == "1 EUR is 1.08 USD"
        bank.is_silent = True
        assert await made["show_rates"]() == "No rates now. Please try again in a minute."


async def test_a_call_in_a_thread_lets_others_go_on_and_ends_in_its_timeout(bank: Bank) -> None:
    made = await sample("asyncio.to_thread(ask_the_bank", BANK=bank.url)
    async with Clock().timeout(MARGIN):
        assert await made["charge_in_a_thread"](1001) == "paid"
        bank.is_silent = True
        waiting = asyncio.create_task(made["charge_in_a_thread"](1001))
        turns = 0
        while not waiting.done():
            await Clock().sleep(0.01)
            turns += 1
        assert await waiting == AWAY
    assert turns > 1  # the loop went on meanwhile


async def test_a_question_to_postgres_answers_and_a_slow_one_ends_in_the_timeout(postgres_url: str) -> None:
    made = await sample("asyncpg.create_pool", DATABASE_URL=postgres_url)
    async with Clock().timeout(3 * MARGIN), await made["open_pool"]() as pool:
        await pool.execute("create table if not exists accounts (user_id bigint primary key, balance int)")
        await pool.execute("insert into accounts values (1001, 7) on conflict do nothing")
        assert await made["balance"](pool, 1001) == "7 left"
        async with pool.acquire() as other, other.transaction():
            await other.execute("lock table accounts")  # so that the question gets no answer
            assert await made["balance"](pool, 1001) == "The books are closed for a moment."
        await pool.execute("drop table accounts")


def test_every_sample_is_python_and_every_bounded_call_is_tested() -> None:
    shown = blocks(PAGE)
    for block in shown:
        read(block, PAGE)
    text = "".join(shown)
    assert all(theirs in text for theirs in SHORTER)
