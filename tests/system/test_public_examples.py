"""The examples that aiogram and python-telegram-bot publish keep their promises behind a gate.

Each is changed in one place only, where the gate is attached, and talks to the simulator.
"""

import asyncio
import importlib.util
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiogram.client.session.aiohttp import AiohttpSession
from blockbuster import BlockBuster

import fork_server
from public_examples import LIBRARIES, folder_of
from system.bots import aiogram_scenes, ptb_scenes, run_aiogram, run_ptb
from system.bots.audience import ANN, Audience, Scene
from system.bots.public_example import (
    ATTACHED_BUILDER,
    LIMITER,
    NOTHING,
    POLLING,
    RUN_POLLING,
    WEBHOOK,
    WITHOUT_DISPATCHER,
    Change,
    load,
)
from system.bots.run_examples import Run, forever, listening
from system.bots.scenes import GENEROUS
from tidegate.delivery.direct import DirectCalls
from tidegate.pacing.rules import family_of
from tidegate.sim.telegram import Limits
from tidegate.sim.telegram.http import TelegramServer

AIOGRAM, PTB = LIBRARIES
FOLDERS = {library: folder_of(library) for library in LIBRARIES}
TOKEN = "42:example"
LIMITS = ("TIDEGATE_BOT_RATE", "TIDEGATE_CHAT_RATE", "TIDEGATE_GROUP_RATE")
USUAL: dict[str, tuple[Change, Run]] = {
    AIOGRAM: (POLLING, run_aiogram.polling),
    PTB: (LIMITER, run_ptb.application),
}
SPECIAL: dict[str, tuple[Change, Run]] = {
    "context_addition_from_filter.py": (NOTHING, run_aiogram.routing),
    "own_filter.py": (NOTHING, run_aiogram.routing),
    "echo_bot_webhook.py": (WEBHOOK, run_aiogram.serving),
    "web_app/main.py": (WEBHOOK, run_aiogram.serving),
    "scene.py": (RUN_POLLING, run_aiogram.polling),
    "without_dispatcher.py": (WITHOUT_DISPATCHER, run_aiogram.once),
    "customwebhookbot/starlettebot.py": (LIMITER, run_ptb.starlette),
    "rawapibot.py": (NOTHING, forever),  # a plain Bot has no place for a limiter
}
MISSING = {  # extras of python-telegram-bot
    file: extra
    for file, module, extra in (
        ("timerbot.py", "apscheduler", "job-queue"),
        ("arbitrarycallbackdatabot.py", "cachetools", "callback-data"),
    )
    if importlib.util.find_spec(module) is None
}
PROCESS = str(Path(run_ptb.__file__).with_name("example_process.py"))
PARTS = {"web_app/handlers.py", "web_app/routes.py"}

pytestmark = [
    pytest.mark.skipif(
        not all(folder.is_dir() for folder in FOLDERS.values()),
        reason="the examples are not here: run `.venv/bin/python tests/public_examples.py`",
    ),
    # What the examples themselves are warned of.
    pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::telegram.warnings.PTBUserWarning"),
    pytest.mark.filterwarnings("ignore::aiohttp.web.NotAppKeyWarning"),
]


@pytest.fixture(autouse=True)
def blocking_calls_of_examples(no_blocking_calls: BlockBuster) -> None:
    """Reading an example, and what python-telegram-bot does with files."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("test_public_examples.py", "_load")
        function.can_block_in("test_public_examples.py", "_check")
        function.can_block_in(
            "test_public_examples.py",
            "test_the_same_messages_in_the_same_order_with_and_without_the_gate",
        )
        function.can_block_in("gettext.py", "find")  # for argparse
        function.can_block_in("telegram/ext/_application.py", "__init__")
        function.can_block_in("telegram/_files/file.py", "download_to_drive")
        for name in ("_load_singlefile", "_dump_singlefile"):
            function.can_block_in("telegram/ext/_picklepersistence.py", name)


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=GENEROUS) as running:
        yield running


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The methods that were given a turn by a gate."""
    given: Counter[str] = Counter()
    usual = DirectCalls.turn

    def turn(self: DirectCalls, bot: Any, method: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        given[method] += 1
        return usual(self, bot, method, *args, **options)

    monkeypatch.setattr(DirectCalls, "turn", turn)
    return given


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty folder, a token, limits that are out of the way; the examples' modules go with the test."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    for limit in LIMITS:
        monkeypatch.setenv(limit, "1000/1")
    monkeypatch.setattr(AiohttpSession, "close", close_at_once)
    yield
    forget_modules_of_examples(modules)


def forget_modules_of_examples(others: Collection[str] = ()) -> None:
    for name in set(sys.modules) - set(others):
        if name == "public_example" or name.partition(".")[0] in {"handlers", "routes"}:
            del sys.modules[name]


async def close_at_once(session: AiohttpSession) -> None:
    """As aiogram does, without the time that it gives TLS to end, which nobody speaks here."""
    if session._session is not None:  # noqa: SLF001  (`close` is what is replaced)
        await session._session.close()  # noqa: SLF001


class Theatre:
    def __init__(self, server: TelegramServer, turns: Counter[str], patch: pytest.MonkeyPatch) -> None:
        self._server = server
        self._turns = turns
        self._patch = patch

    async def play(self, library: str, file: str, *scenes: Scene) -> None:
        """Start the example once for each scene. Every call that has a limit went through the gate."""
        change, run = SPECIAL.get(file, USUAL[library])
        (run_aiogram if library == AIOGRAM else run_ptb).point_at(self._server.url, self._patch)
        for scene in scenes:
            await self._start(FOLDERS[library] / file, change, run, scene)
        self._check(attached=change is not NOTHING or library == AIOGRAM)

    async def compare(self, library: str, file: str, change: Change, scenes: tuple[Scene, ...]) -> None:
        """Start the example with this change, or none, once for each scene."""
        (run_aiogram if library == AIOGRAM else run_ptb).point_at(self._server.url, self._patch)
        for scene in scenes:
            await self._start(FOLDERS[library] / file, change, USUAL[library][1], scene)

    def _check(self, *, attached: bool) -> None:
        report = self._server.telegram.report()
        assert report["refused"] == 0
        sent = Counter({name: n for name, n in report["methods"].items() if family_of(name) != "free"})
        if attached:
            assert sent == Counter({name: n for name, n in self._turns.items() if family_of(name) != "free"})
            assert Path("gate.db").exists()

    async def _start(self, path: Path, change: Change, run: Run, scene: Scene) -> None:
        bot = self._server.telegram.world.bot(TOKEN)
        assert bot is not None
        socket, url = listening()
        with socket:
            module = self._load(path, change, url)
            vars(module).update(SOCKET=socket)
            audience = Audience(self._server.telegram, bot, module)
            async with run(module, self._patch):
                await scene(audience)

    def _load(self, path: Path, change: Change, url: str) -> ModuleType:
        self._patch.setenv("APP_BASE_URL", url)
        self._patch.syspath_prepend(path.parent)
        module = load(path, change, TOKEN, Path("gate.db"))
        # What an example leaves to be filled in.
        vars(module).update(TOKEN=TOKEN, URL=url, BASE_WEBHOOK_URL=url)
        vars(module).update(ARGUMENTS=["example", "--token", TOKEN, "--chat-id", str(ANN)])
        return module


@pytest.fixture
async def theatre(
    server: TelegramServer,
    turns: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    surroundings: None,  # noqa: ARG001  (for what it does)
) -> Theatre:
    return Theatre(server, turns, monkeypatch)


@pytest.mark.parametrize("file", aiogram_scenes.SCENES)
async def test_aiogram(file: str, theatre: Theatre) -> None:
    await theatre.play(AIOGRAM, file, aiogram_scenes.SCENES[file])


@pytest.mark.parametrize("file", ptb_scenes.SCENES)
async def test_python_telegram_bot(file: str, theatre: Theatre) -> None:
    if file in MISSING:
        pytest.skip(f"python-telegram-bot[{MISSING[file]}] is not installed")
    await theatre.play(PTB, file, *ptb_scenes.SCENES[file])


COMPARED = [(AIOGRAM, file) for file in aiogram_scenes.SCENES if file not in SPECIAL] + [
    (PTB, file)
    for file in ptb_scenes.SCENES
    if file not in SPECIAL and file not in {"arbitrarycallbackdatabot.py", "timerbot.py"}
]


@pytest.mark.parametrize(("library", "file"), COMPARED)
async def test_the_same_messages_in_the_same_order_with_and_without_the_gate(
    library: str,
    file: str,
    turns: Counter[str],
    surroundings: None,  # noqa: ARG001
) -> None:
    scenes = aiogram_scenes.SCENES[file] if library == AIOGRAM else ptb_scenes.SCENES[file]
    attached = POLLING if library == AIOGRAM else ATTACHED_BUILDER
    runs = []
    for change in (NOTHING, attached):
        for left in Path.cwd().iterdir():  # what the plain one has kept
            left.unlink()
        forget_modules_of_examples()
        with pytest.MonkeyPatch.context() as patch:
            async with TelegramServer(limits=GENEROUS) as server:
                theatre = Theatre(server, turns, patch)
                await theatre.compare(
                    library, file, change, scenes if isinstance(scenes, tuple) else (scenes,)
                )
                runs.append(transcript(server))

    assert runs[0] == runs[1]
    assert runs[0], "the example said nothing"


def transcript(server: TelegramServer) -> dict[object, list[tuple[str, int, str]]]:
    """What each chat got, in order: a bot may serve several chats side by side."""
    said: dict[object, list[tuple[str, int, str]]] = {}
    for call in server.telegram.request_log.log:
        if family_of(call.method) != "free":
            said.setdefault(call.chat_id, []).append((call.method, call.status, call.text))
    return said


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_example_is_forgotten(library: str) -> None:
    scenes: Any = aiogram_scenes if library == AIOGRAM else ptb_scenes
    folder = FOLDERS[library]
    there = {str(path.relative_to(folder)) for path in (*folder.glob("*.py"), *folder.glob("*/*.py"))}
    assert there - PARTS == scenes.SCENES.keys() | scenes.NOT_PLAYED.keys()


async def test_two_replies_to_a_chat_leave_at_once_at_the_usual_limits(
    server: TelegramServer, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.telegram.set_limits(Limits())
    for limit in LIMITS:
        monkeypatch.delenv(limit)

    await theatre.play(AIOGRAM, "echo_bot.py", two_at_once)

    report = server.telegram.report()
    assert (report["refused"], report["peaks"]["private"]) == (0, 2)


@pytest.mark.proof  # aiogram takes seconds to start
async def test_a_process_of_its_own_ends_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_TOKEN", TOKEN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    async with TelegramServer() as server:
        bot = server.telegram.world.bot(TOKEN)
        assert bot is not None
        audience = Audience(server.telegram, bot, ModuleType("elsewhere"))
        process = await fork_server.create_process(
            *(sys.executable, PROCESS, FOLDERS[PTB] / "echobot.py", server.url, tmp_path / "gate.db"),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await two_at_once(audience)
        finally:
            process.send_signal(signal.SIGINT)
            _, complaints = await process.communicate()

    assert process.returncode == 0, complaints.decode()
    report = server.telegram.report()
    assert (report["refused"], report["peaks"]["private"]) == (0, 2)


async def two_at_once(audience: Audience) -> None:
    for text in ("one", "two"):
        audience.ann.says(text)
    assert [(await audience.ann.hears(40))["text"] for _ in range(2)] == ["one", "two"]
