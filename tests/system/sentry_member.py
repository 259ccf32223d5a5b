"""A process that reports to Sentry, one scene each: `python -m system.sentry_member log`."""

import asyncio
import http.client
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import aiohttp

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.incidents import Incident

SECRET = "AAEEqwertyuiopasdfghjklzxcvbnm-_123"
TOKEN = f"42:{SECRET}"
PERSONAL = "ann-loves-tea"

log = logging.getLogger("tidegate.worker")
shop = logging.getLogger("shop")


def gate_that_reports() -> Tidegate:
    gate = Tidegate("memory://")
    print(json.dumps({"reports": gate.report_to_sentry()}), flush=True)  # noqa: T201  (for the test)
    return gate


def fail_with(text: str) -> None:
    secret_local = text
    raise ValueError(secret_local)


async def lines() -> None:
    gate_that_reports()
    log.error("message %s could not be sent: POST https://api.example.org/bot%s/x", PERSONAL, TOKEN)
    shop.error(f"{PERSONAL} wants {TOKEN}")
    shop.error("payment of %s failed", PERSONAL, extra={"customer": PERSONAL, "token": TOKEN})
    try:
        fail_with(f"{PERSONAL} https://api.example.org/bot{TOKEN}/getMe")
    except ValueError:
        log.exception("a step of the shop has failed")
    log.warning("a line of no interest")


async def breadcrumbs() -> None:
    gate_that_reports()
    port = int(os.environ["HTTP_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", f"/bot{TOKEN}/getMe?name={PERSONAL}", b"")
    connection.getresponse().read()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/bot{TOKEN}/sendMessage?name={PERSONAL}", data=b"") as answer,
    ):
        await answer.read()
    shop.warning("before it: %s", PERSONAL)
    log.error("something has failed")


async def incident() -> None:
    gate = gate_that_reports()
    gate.report_to_sentry()  # once is enough, and twice does not double
    gate.core.incidents.note(
        Incident(
            kind="loop_blocked",
            text=f"loop blocked 0.4 s in pay.py:42 requests.post bot{TOKEN}, handler on_pay, chat 100100",
            group="loop_blocked pay.py:42",
            seconds=0.4,
            place="pay.py:42",
            handler="on_pay",
            chat=100100,
            stack=("bot.py:7 main", "pay.py:42 on_pay"),
        )
    )


async def bot(**switches: Any) -> None:  # noqa: ANN401  (of attach)
    from aiogram import Dispatcher, types  # noqa: PLC0415  (slow to import, likewise below)

    from system.bots.aiogram_shop import bot_of, serving  # noqa: PLC0415
    from system.bots.scenes import GENEROUS  # noqa: PLC0415
    from tidegate.sim.telegram import Person  # noqa: PLC0415
    from tidegate.sim.telegram.http import TelegramServer  # noqa: PLC0415

    dispatcher = Dispatcher()
    failed = asyncio.Event()

    @dispatcher.message()
    async def on_order(message: types.Message) -> None:
        failed.set()
        raise LookupError(f"no such plan: {message.text}")

    async with TelegramServer(limits=GENEROUS) as server:
        theirs = bot_of(server)
        gate = gate_that_reports()
        gate.attach(dispatcher, theirs, **switches)
        known = server.telegram.world.bot(theirs.token)
        assert known is not None
        async with serving(dispatcher, theirs):
            Person(server.telegram, known, 1001).says(PERSONAL)
            async with Clock().timeout(10):
                await failed.wait()
            await Clock().sleep(0.3)  # until it is logged


async def durable_bot() -> None:
    await bot(updates="durable")


async def api() -> None:
    import httpx  # noqa: PLC0415
    from fastapi import FastAPI  # noqa: PLC0415

    gate_that_reports()
    app = FastAPI()

    @app.post("/orders/{number}")
    async def order(number: str) -> None:
        await Clock().sleep(0.1)  # a profile needs a few samples
        raise LookupError(f"no order {number}")

    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"X-Secret": TOKEN, "Cookie": f"name={PERSONAL}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://shop", headers=headers) as client:
        for _ in range(int(os.environ.get("REQUESTS", "1"))):
            answer = await client.post(f"/orders/{PERSONAL}?token={TOKEN}", json={"name": PERSONAL})
            assert answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR


async def own() -> None:
    import sentry_sdk  # noqa: PLC0415

    sentry_sdk.init(os.environ["SENTRY_DSN"], environment="theirs")
    before = sentry_sdk.get_client()
    await incident()
    assert sentry_sdk.get_client() is before


async def storm() -> None:
    gate_that_reports()
    begun = Clock().monotonic()
    for number in range(2_000):
        log.error("message %s could not be sent", number)
    print(json.dumps({"seconds": Clock().monotonic() - begun}), flush=True)  # noqa: T201


async def only_attached() -> None:
    from aiogram import Bot, Dispatcher  # noqa: PLC0415

    gate = Tidegate("memory://")
    gate.attach(Dispatcher(), Bot(TOKEN))
    async with gate:
        log.error("an error")
    print(json.dumps({"imported": "sentry_sdk" in sys.modules}), flush=True)  # noqa: T201


SCENES: dict[str, Callable[[], Awaitable[None]]] = {
    one.__name__: one
    for one in (lines, breadcrumbs, incident, bot, durable_bot, api, own, storm, only_attached)
}

if __name__ == "__main__":
    asyncio.run(SCENES[sys.argv[1]]())  # type: ignore[arg-type]
    print(json.dumps({"done": True}), flush=True)  # noqa: T201
