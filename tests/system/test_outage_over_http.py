"""Servers that fail in five ways at once, over HTTP: each bot waits for its own, and nothing dies."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from aiohttp import web

from tidegate import Tidegate
from tidegate.clock import Clock

PAGE: Final = "<html><body>Sorry</body></html>"
FAILURES: Final = {
    1: lambda: web.json_response({"ok": False, "error_code": 502, "description": "Bad Gateway"}, status=502),
    2: lambda: web.Response(text=PAGE, content_type="text/html", status=403),
    3: lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}),
    4: lambda: web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"}),
    5: lambda: web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404),
}
PEOPLE: Final = 20
OUTAGE: Final = 3.0  # seconds


class FailingTelegram:
    """A Bot API that fails for each bot in another way while `fails` is set."""

    def __init__(self) -> None:
        self.fails = True
        self.failed: Counter[int] = Counter()
        self.heard: defaultdict[int, list[int]] = defaultdict(list)  # chats, by bot

    async def answer(self, request: web.Request) -> web.StreamResponse:
        bot = int(request.match_info["token"].partition(":")[0])
        if self.fails:
            self.failed[bot] += 1
            return FAILURES[bot]()
        if request.match_info["method"] == "sendMessage":
            self.heard[bot].append((await request.json())["chat_id"])
        return web.json_response({"ok": True, "result": {"message_id": 1}})


async def test_whatever_a_server_answers_instead_of_telegram_no_message_dies_or_comes_twice(
    tmp_path: Path,
) -> None:
    telegram, clock = FailingTelegram(), Clock()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", telegram.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [address] = runner.addresses
    try:
        async with Tidegate(tmp_path / "tidegate.db") as gate:
            bots = [
                gate.add_bot(f"{number}:{'t' * 35}", api_url=f"http://127.0.0.1:{address[1]}")
                for number in FAILURES
            ]
            for bot in bots:
                people = ({"chat_id": chat, "text": "hello"} for chat in range(1, PEOPLE + 1))
                await gate.send_many(people, bot=bot)
            async with gate.worker():
                await clock.sleep(OUTAGE)
                assert not gate.health().ready
                telegram.fails = False
                async with clock.timeout(40):
                    await gate.drained()
                stats = await gate.stats()
    finally:
        await runner.cleanup()
    assert (stats.delivered, stats.dead, stats.parked) == (PEOPLE * len(FAILURES), 0, 0)
    for number in FAILURES:
        assert sorted(telegram.heard[number]) == list(range(1, PEOPLE + 1))
        assert telegram.failed[number] < PEOPLE, "the bot was left alone, save for one message at a time"
