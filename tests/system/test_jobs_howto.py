"""The samples of the how-to on jobs, run unchanged: its bot as a process, its jobs, its commands."""

import asyncio
import base64
import hmac
import importlib
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest

from system.bots.scenes import GENEROUS
from system.killing import running
from system.operators import Desk
from system.shops import FAST, TOKEN, Street
from system.snippets import HOWTOS, blocks, programs
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.jobs.port import JobLease
from tidegate.jobs.record import JobFailed, JobState, NewJob
from tidegate.sim.telegram.http import TelegramServer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # as on the page
PAGE = "run-heavy-work-elsewhere.md"
LABELS = "def draw_label(order):\n    return b'%PDF ' + order.encode()\n"
# Imported by every Python process of the folder: whatever would call Telegram calls the simulator.
ELSEWHERE = """
import os, sys
if "celery" not in sys.argv[0]:
    from aiogram.client.session.base import BaseSession
    from aiogram.client.telegram import TelegramAPIServer
    api = TelegramAPIServer.from_base(os.environ["SIMULATOR"])
    BaseSession.__init__.__defaults__ = (api, *BaseSession.__init__.__defaults__[1:])
"""
_COMMANDS = re.compile(r"^tidegate (.*?)(?:  #.*)?$", re.MULTILINE)
clock = Clock()


@asynccontextmanager
async def the_bot(folder: Path, server: TelegramServer) -> AsyncIterator[asyncio.subprocess.Process]:
    [program] = await asyncio.to_thread(programs, PAGE)
    files = {"bot.py": program, "labels.py": LABELS, "sitecustomize.py": ELSEWHERE}
    for name, text in files.items():
        await asyncio.to_thread((folder / name).write_text, text)
    variables = FAST | {"TELEGRAM_BOT_TOKEN": TOKEN, "SIMULATOR": server.url, "PYTHONPATH": str(folder)}
    async with running(script=str(folder / "bot.py"), **variables) as process:
        yield process


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("real_interpreters")  # for sitecustomize
async def test_the_bot_of_the_page_answers_at_once_and_sends_the_label_later(workplace: Path) -> None:
    async with TelegramServer(limits=GENEROUS) as server:
        street = Street(server, workplace, "aiogram")
        ann = street.person(1001)
        async with the_bot(workplace, server) as process:
            ann.says("/label 17")
            assert (await ann.hears(30))["text"] == "Your label will be ready in a minute."
            label = await ann.hears(30)
            assert (label["caption"], label["document"]["file_name"]) == ("Order 17", "17.pdf")
            assert street.content(label) == b"%PDF 17"
            ann.says("/label 17")
            assert (await ann.hears(10))["text"] == "That label is made already, or on its way."
            process.terminate()
            assert await process.wait() == 0


@asynccontextmanager
async def served(gate: Tidegate) -> AsyncIterator[str]:
    """While the body runs, the gate delivers and serves its hooks."""
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(gate.serve(port=0, on_ready=ready.set_result))
    async with clock.timeout(60):
        port = await ready
    yield f"http://127.0.0.1:{port}"
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def post_signed(url: str, body: bytes) -> None:
    """Send an event as a payment provider does (Standard Webhooks)."""
    key, sent_at = base64.b64decode(SECRET.removeprefix("whsec_")), f"{clock.now():.0f}"
    digest = hmac.digest(key, b".".join((b"evt_1", sent_at.encode(), body)), "sha256")
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": sent_at,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


@pytest.fixture
def tasks(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module with the other jobs of the page."""
    [text] = [block for block in blocks(PAGE) if "on_done" in block]
    (workplace / "page_tasks.py").write_text(text)
    monkeypatch.syspath_prepend(str(workplace))
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "page_tasks", raising=False)
    return importlib.import_module("page_tasks")


async def test_callbacks_tell_the_chat_and_a_hook_hands_its_events_to_a_job(tasks: ModuleType) -> None:
    async with TelegramServer(limits=GENEROUS) as server:
        gate = tasks.gate
        gate.add_bot(TOKEN, api_url=server.url)
        async with served(gate) as url:
            for order in ("17", "x"):
                await tasks.price.options(chat_id=1001).submit(order)
            for _ in range(2):  # as a provider that has not heard the first answer
                await post_signed(f"{url}/hooks/payments", b'{"order": 17}')
            async with clock.timeout(60):
                while len(told := {entry.text for entry in server.telegram.request_log.log}) < 2:
                    await clock.sleep(0.05)
                while not (jobs := await gate.jobs.list(name="book")):
                    await clock.sleep(0.05)
            [booked] = [await gate.jobs.ended(job.id, timeout=60) for job in jobs]

    assert "Order 17 costs 1700." in told
    [failed] = told - {"Order 17 costs 1700."}
    assert failed.startswith("No price for x: ValueError: x is not an order (")
    assert tasks.printed == ["17"]
    assert (booked.state, booked.args[0]["json"]) == (JobState.DONE, {"order": 17})


def test_every_command_that_the_page_shows_does_what_it_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "http://127.0.0.1:1")
    desk.store = tmp_path / "bot.db"
    desk.begin()

    async def fail(gate: Tidegate) -> None:
        store = await gate.jobs.opened()
        await store.add([NewJob(name="label", args=(17,))])
        [job] = await store.claim(["label"], 1, 60.0)
        await store.settle(JobLease(job.id, job.token), JobFailed("no", final=True))

    desk.within(fail)
    shown = _COMMANDS.findall((HOWTOS / PAGE).read_text("utf-8"))
    states = []
    for command in shown:
        code, _, err = desk.quickly(*shlex.split(command))
        assert code == 0, (command, err)
        found = json.loads(desk.quickly("jobs", "list", "--json", "--store", "bot.db")[1])
        states.append(found["jobs"][0]["state"])
    assert len(shown) == 6
    assert states == ["dead", "dead", "dead", "dead", "queued", "queued"]
