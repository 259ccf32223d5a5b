"""The bots of `examples/gateway`, each with its own library, behind one `tidegate gateway`."""

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import fork_server
from node_packages import node_modules
from servers import NODE, ServerMissing, find
from system.operators import TIDEGATE, of_process
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "gateway"
TOKENS: Final = {
    "aiogram": "41:aiogram",
    "ptb": "42:ptb",
    "telebot": "43:telebot",
    "grammy": "44:grammy",
    "curl": "45:curl",
}
PATIENCE: Final = 30.0  # seconds


class Gateway(NamedTuple):
    """A simulated Telegram with the gateway before it."""

    telegram: TelegramServer
    url: str
    folder: Path

    def environment(self, name: str, **more: str) -> dict[str, str]:
        ours = {"TELEGRAM_API_URL": self.url, "TELEGRAM_BOT_TOKEN": TOKENS[name]}
        return of_process() | ours | more

    def person(self, name: str, number: int) -> Person:
        bot = self.telegram.telegram.world.bot(TOKENS[name])
        assert bot is not None
        return Person(self.telegram.telegram, bot, number)

    async def delivered_from_the_queue(self) -> int:
        async with Tidegate(self.folder / "gateway.db") as gate:
            return (await gate.stats()).delivered


@asynccontextmanager
async def process(
    *command: str | Path, cwd: Path, env: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that is stopped by SIGTERM, as a service is."""
    create = fork_server.create_process if command[0] == sys.executable else asyncio.create_subprocess_exec
    started = await create(*command, cwd=cwd, env=env, stdout=asyncio.subprocess.PIPE)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGTERM)
        try:
            async with Clock().timeout(PATIENCE):
                await started.communicate()
        except TimeoutError:
            started.kill()
            await started.communicate()
            raise


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    async with AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(TelegramServer())
        command = [*TIDEGATE, "gateway", "--listen", "127.0.0.1:0", "--telegram", telegram.url]
        command += ["--store", "gateway.db"]
        started = await stack.enter_async_context(process(*command, cwd=folder, env=of_process()))
        assert started.stdout is not None
        url = (await started.stdout.readline()).split()[1].decode().rstrip("/")
        yield Gateway(telegram, url, folder)


async def check_conversation(gateway: Gateway, name: str, number: int) -> None:
    """Replies come in the turn of their calls; the news come out of the queue."""
    person, queued = gateway.person(name, number), await gateway.delivered_from_the_queue()
    async with Clock().timeout(PATIENCE):
        person.says("hello")
        assert (await person.hears())["text"] == "You said: hello"
        person.says("/news")
        assert (await person.hears())["text"] == "News for you"
        while await gateway.delivered_from_the_queue() == queued:  # settled a moment later
            pass
    assert gateway.telegram.telegram.report()["refused"] == 0


@pytest.mark.parametrize("name", ["aiogram", "ptb", "telebot"])
async def test_a_bot_in_python_talks_through_the_gateway(gateway: Gateway, name: str) -> None:
    command = (sys.executable, EXAMPLES / f"{name}_bot.py")
    async with process(*command, cwd=gateway.folder, env=gateway.environment(name)):
        await check_conversation(gateway, name, 1001)


async def test_a_bot_in_javascript_talks_through_the_gateway(gateway: Gateway, tmp_path: Path) -> None:
    try:
        command = await asyncio.to_thread(javascript, tmp_path)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    async with process(*command, cwd=tmp_path, env=gateway.environment("grammy")):
        await check_conversation(gateway, "grammy", 1002)


def javascript(folder: Path) -> tuple[Path, Path]:
    """Node, and the program with its packages beside it. Raises ServerMissing."""
    (folder / "node_modules").symlink_to(node_modules())
    return find(NODE).path, Path(shutil.copy(EXAMPLES / "grammy_bot.mjs", folder))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: apt-get install curl")
async def test_curl_sends_in_turn_and_queues_once(gateway: Gateway) -> None:
    person = gateway.person("curl", 1003)
    environment, said = gateway.environment("curl", CHAT="1003"), []
    for _ in range(2):
        async with process("sh", EXAMPLES / "curl.sh", cwd=gateway.folder, env=environment) as script:
            out, _ = await script.communicate()
            assert script.returncode == 0
        said.append(out.decode().splitlines())

    sent = [json.loads(line)["result"]["text"] for line, _ in said]
    tickets = {ticket.lower().partition(": ")[2] for _, ticket in said}
    async with Clock().timeout(PATIENCE):
        heard = sorted([(await person.hears())["text"] for _ in range(3)])
    assert sent == ["Your order is on its way"] * 2
    assert len(tickets) == 1
    assert heard == ["How was it?", *sent]


PAGE: Final = (Path(__file__).parents[2] / "docs" / "howto" / "use-the-gateway.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", blocks("python") + blocks("js"))
def test_what_the_page_shows_of_a_library_is_part_of_a_bot_that_runs(block: str) -> None:
    programs = [path.read_text("utf-8") for path in EXAMPLES.iterdir() if path.suffix in {".py", ".mjs"}]
    lines = [line.strip() for line in block.splitlines()]
    assert any(all(line in program for line in lines) for program in programs)


async def test_the_calls_by_curl_that_the_page_shows_are_answered(gateway: Gateway) -> None:
    shown = [block for block in blocks("sh") if block.startswith("curl")]
    program = "set -e\n" + "\necho\n".join(shown).replace("http://127.0.0.1:8081", gateway.url)
    environment = gateway.environment("curl", CHAT="1004")
    async with process("sh", "-c", program, cwd=gateway.folder, env=environment) as script:
        out, _ = await script.communicate()

    answers = [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]
    assert [(answer["ok"], answer["result"]["text"]) for answer in answers] == [
        (True, "Hello"),
        (True, "How was it?"),
    ]
    assert b"x-tidegate-ticket: " in out.lower()
