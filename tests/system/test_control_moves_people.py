"""The control API lets people do what people do, for those who test a bot from outside."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from simulated import TOKEN
from system.bots.stage import INVOICE
from tidegate.sim.telegram import Limits
from tidegate.sim.telegram.http import TelegramServer

ANN: dict[str, Any] = {"bot": 42, "user": 7}
GROUP = -5


class Remote:
    """One who knows the simulator by its address only, as bot and as people."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def bot(self, method: str, **params: object) -> Any:  # noqa: ANN401  (JSON)
        async with self._http.post(f"/bot{TOKEN}/{method}", json=params) as answer:
            return (await answer.json())["result"]

    async def person(self, verb: str, **order: object) -> Any:  # noqa: ANN401
        async with self._http.post(f"/sim/{verb}", json=ANN | order) as answer:
            return await answer.json()

    async def newest(self) -> dict[str, Any]:
        update: dict[str, Any] = (await self.bot("getUpdates", offset=-1))[0]
        return update


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    async with (
        TelegramServer(limits=Limits(closes="nothing")) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        made = Remote(http)
        await made.bot("getUpdates", allowed_updates=["message", "edited_message", "poll", "chat_member"])
        yield made


async def test_somebody_sends_and_changes_things(remote: Remote) -> None:
    await remote.person("send", content={"location": {"latitude": 51.9, "longitude": 1.3}})
    assert (await remote.newest())["message"]["location"]["latitude"] == 51.9
    await remote.person("send", photo=base64.b64encode(b"picture").decode(), content={"caption": "me"})
    message = (await remote.newest())["message"]
    assert (message["caption"], message["photo"][-1]["file_size"]) == ("me", 7)
    await remote.person("send", document=base64.b64encode(b"paper").decode())
    assert (await remote.newest())["message"]["document"]["file_size"] == 5
    await remote.person("say", text="helo")
    await remote.person("edit", text="hello")
    assert (await remote.newest())["edited_message"]["text"] == "hello"


async def test_buttons_and_keys_are_pressed_by_what_they_read(remote: Remote) -> None:
    await remote.bot("getUpdates", allowed_updates=["message", "callback_query"])
    buttons = {"inline_keyboard": [[{"text": "Ja", "callback_data": "y"}]]}
    await remote.bot("sendMessage", chat_id=7, text="?", reply_markup=buttons)
    await remote.person("press", label="Ja", language="de")
    pressed = (await remote.newest())["callback_query"]
    assert (pressed["data"], pressed["from"]["language_code"]) == ("y", "de")
    await remote.bot("sendMessage", chat_id=7, text="?", reply_markup={"keyboard": [["Weiter"]]})
    await remote.person("tap", label="Weiter")
    assert (await remote.newest())["message"]["text"] == "Weiter"


async def test_somebody_comes_into_a_group_votes_there_and_goes(remote: Remote) -> None:
    await remote.person("join", chat=GROUP)
    await remote.bot("sendPoll", chat_id=GROUP, question="?", options=["a", "b"])
    voted = await remote.person("vote", chat=GROUP, options=[1])
    assert voted["total_voter_count"] == (await remote.newest())["poll"]["total_voter_count"] == 1
    await remote.person("join", chat=GROUP, joined=False)
    assert (await remote.newest())["message"]["left_chat_member"]["id"] == 7


async def test_somebody_pays(remote: Remote) -> None:
    await remote.bot("sendInvoice", chat_id=7, **INVOICE)
    assert await remote.person("pay") == {"state": "confirming", "total_amount": 42, "currency": "XTR"}


async def test_somebody_looks_something_up(remote: Remote) -> None:
    await remote.bot("getUpdates", allowed_updates=["inline_query"])
    looking = asyncio.create_task(remote.person("query", text="tea"))
    [update] = await remote.bot("getUpdates", timeout=5)
    tea = {"type": "article", "id": "1", "title": "Tea", "input_message_content": {"message_text": "Tea!"}}
    await remote.bot("answerInlineQuery", inline_query_id=update["inline_query"]["id"], results=[tea])
    assert await looking == {"results": [tea]}


@pytest.mark.parametrize(
    ("verb", "order", "reason"),
    [
        ("send", {}, "nothing is sent"),
        ("send", {"content": {"chat": {}}}, "must not hold"),
        ("press", {"label": "x"}, "sees no buttons"),
        ("tap", {}, "sees no key"),
        ("say", {"text": "x", "language": "?"}, "language"),
        ("edit", {"text": "x"}, "has written nothing"),
        ("vote", {"options": [0]}, "there is no poll"),
        ("pay", {}, "sees no such invoice"),
        ("query", {"text": "x", "timeout": 0.01}, "did not answer within 0.01 s"),
        ("join", {}, "missing required field"),
    ],
)
async def test_what_cannot_be_done_is_said(
    remote: Remote, verb: str, order: dict[str, object], reason: str
) -> None:
    assert reason in (await remote.person(verb, **order))["error"]
