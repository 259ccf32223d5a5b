"""The tutorial, followed step by step on the simulators and on Redis, with its files as they stand."""

import asyncio
import json
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from system.killing import running
from system.operators import Desk
from system.snippets import DOCS, blocks
from tidegate.clock import Clock
from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.shop import Shop
from tidegate.sim.telegram.http import TelegramServer

CHAPTERS: Final = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorial").glob("*.md"))
TOKEN: Final = "42:any"
# Seconds, on a busy machine: the processes of jobs have a low priority, and get what others leave.
SOON: Final = 250.0
ROWS: Final = 5  # of `tidegate sim nocodb --rows 5`
_COMMANDS: Final = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_IMPORTS: Final = re.compile(r"^(?:from|import) .*\n", re.MULTILINE)
clock: Final = Clock()
pytestmark = pytest.mark.timeout(600)  # several processes start, one after another


def follow(chapter: str, folder: Path) -> None:
    """Write the files of a chapter, and change those of earlier ones as it says."""
    for block in blocks(chapter):
        place, _, code = block.partition("\n")
        name, _, change = place.removeprefix("# ").partition(", ")
        file = folder / name
        match change:
            case "":
                file.write_text(code)
            case "beside the other imports":
                text = file.read_text()
                end = list(_IMPORTS.finditer(text))[-1].end()
                file.write_text(text[:end] + code + text[end:])
            case "instead of the last line":
                lines = file.read_text().splitlines()
                file.write_text("\n".join([*lines[:-1], code]))
            case _:
                raise AssertionError(place)


def _commands_of(chapter: str) -> list[list[str]]:
    shown = _COMMANDS.findall((DOCS / chapter).read_text())
    return [shlex.split(line) for block in shown for line in block.splitlines()]


COMMANDS: Final = {chapter: _commands_of(chapter) for chapter in CHAPTERS}


class Reader:
    """A person who follows the tutorial in a folder, with simulators at their own addresses."""

    def __init__(self, folder: Path, telegram: TelegramServer, noco: NocoDbServer) -> None:
        self.folder = folder
        self._telegram, self._noco = telegram, noco
        self._http = aiohttp.ClientSession()
        self.variables = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_API_URL": telegram.url,
            "NOCODB_URL": noco.url,
            "PYTHONPATH": str(folder),
        }

    async def close(self) -> None:
        await self._http.close()

    async def curl(self, words: list[str]) -> Any:  # noqa: ANN401  (JSON)
        """Make the request of a `curl` line, which is answered with 200."""
        address = words[-1].replace("http://127.0.0.1:8081", self._telegram.url)
        address = address.replace("http://127.0.0.1:8082", self._noco.url)
        data = words[words.index("-d") + 1] if "-d" in words else None
        if data and "crowd" in address:
            data = json.dumps(json.loads(data) | {"users": 30, "seconds": 1})
        async with self._http.request("POST" if data else "GET", address, data=data) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def heard(self) -> list[str]:
        log = await self.curl(["curl", f"{self._telegram.url}/sim/log?chat=1001"])
        return [call["text"] for call in log["log"] if call["status"] == 200 and call.get("text")]

    async def hears(self, *texts: str) -> None:
        async with clock.timeout(SOON):
            while missing := Counter(texts) - Counter(await self.heard()):
                await clock.sleep(0.1)
        assert not missing

    @asynccontextmanager
    async def bot(self, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
        async with running(script=str(self.folder / "bot.py"), **self.variables, **variables) as process:
            async with clock.timeout(SOON):
                while self._telegram.telegram.report()["methods"].get("getUpdates", 0) == 0:
                    assert process.returncode is None
                    await clock.sleep(0.05)
            yield process


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def reader(workplace: Path) -> AsyncIterator[Reader]:
    noco = SimulatedNocoDb(clock)
    Shop(noco, ROWS)
    async with AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(TelegramServer())
        server = await stack.enter_async_context(NocoDbServer(noco))
        reader = Reader(workplace, telegram, server)
        stack.push_async_callback(reader.close)
        yield reader


async def step(reader: Reader, chapter: str, word: str) -> Any:  # noqa: ANN401  (JSON)
    """Run the first `curl` line of a chapter that has this word."""
    lines = [words for words in COMMANDS[chapter] if words[0] == "curl" and word in " ".join(words)]
    return await reader.curl(lines[0])


TICKET: Final = "Your ticket: T-17"


@pytest.mark.usefixtures("real_interpreters")  # jobs are run by processes that import the files
async def test_the_bot_of_the_first_four_chapters_does_what_they_say(reader: Reader) -> None:
    first, reminders, payment, work, _ = CHAPTERS
    for chapter in (first, reminders, payment, work):
        await asyncio.to_thread(follow, chapter, reader.folder)
    desk = Desk(reader.folder, "http://127.0.0.1:1")

    def command(*words: str) -> dict[str, Any]:
        return desk.told(*words)

    async with reader.bot() as process:
        for words in COMMANDS[first]:
            if words[0] == "curl":
                await reader.curl(words)
        await reader.hears("Ahoy! Ask for the /ferries, or get a /ticket.", "09:00 Dover", TICKET, TICKET)
        assert (await reader.curl(["curl", "http://127.0.0.1:8081/sim/report"]))["refused"] == 0

        await step(reader, reminders, "/remind 25:00")
        await step(reader, reminders, "/remind 08:30")
        await reader.hears("I will remind you.")
        assert any(
            text.startswith("That did not work: '25:00' is not a time") for text in await reader.heard()
        )

        await step(reader, payment, "/pass")
        await reader.hears(f"Your order is {ROWS + 1}. Please pay at the counter.")
        await step(reader, payment, "/sim/pay")
        await step(reader, work, "/card")
        await reader.hears(
            "Order 6 is paid. Here is your season pass!", "Your card is being printed.", "Your card"
        )

        [snooze] = [words for words in COMMANDS[reminders] if "snooze" in words]
        await asyncio.to_thread(command, *snooze[1:-1], "1s")
        await reader.hears("Your ferry leaves in half an hour.")

        await asyncio.to_thread(command, "queue", "pause")
        tickets = (await reader.heard()).count(TICKET)
        await step(reader, first, "/ticket")
        await until(lambda: command("queue", "stats")["total_queued"] == 1)
        process.kill()
        await process.wait()
    async with reader.bot():
        await asyncio.to_thread(command, "queue", "resume")
        await reader.hears(*[TICKET] * (tickets + 1))
        assert (await reader.heard()).count(TICKET) == tickets + 1


async def until(came: Callable[[], object]) -> None:
    async with clock.timeout(SOON):
        while not await asyncio.to_thread(came):
            await clock.sleep(0.1)


async def test_a_second_process_on_redis_goes_on_when_the_first_is_killed(
    reader: Reader, empty_redis_url: str
) -> None:
    for chapter in CHAPTERS:
        await asyncio.to_thread(follow, chapter, reader.folder)
    async with reader.bot(REDIS_URL=empty_redis_url) as first, reader.bot(REDIS_URL=empty_redis_url):
        await step(reader, CHAPTERS[4], "/ferries")
        await reader.hears("06:10 Rye", "07:40 Hythe", "09:00 Dover")
        assert len(await reader.heard()) == 3  # each once, whichever process has sent it
        first.kill()
        await step(reader, CHAPTERS[0], "/start")
        await reader.hears("Ahoy! Ask for the /ferries, or get a /ticket.")
        assert (await step(reader, CHAPTERS[4], "/sim/report"))["refused"] == 0
