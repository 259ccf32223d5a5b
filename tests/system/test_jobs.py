"""Jobs in real processes: on the pool of a bot, and on workers of Celery with real Redis and RabbitMQ."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

import fork_server
from servers import ServerMissing, rabbitmq_server
from system import job_bot
from system.bots.scenes import GENEROUS
from system.job_bot import FIRST_CHAT
from system.killing import clock, in_thread, line_of, running, tell
from tidegate.sim.telegram.http import TelegramServer

pytestmark = pytest.mark.timeout(240)

TESTS: Final = str(Path(__file__).parents[1])
CELERY: Final = str(Path(sys.executable).with_name("celery"))
CLOSED: Final = "redis://127.0.0.1:9/0"  # nobody listens
RATES: Final = {"TIDEGATE_BOT_RATE": "10000/1", "TIDEGATE_CHAT_RATE": "1000/1"}


class Stage(msgspec.Struct):
    """A simulated Telegram, the folder of the bot and its environment."""

    server: TelegramServer
    folder: Path
    environment: dict[str, str]

    @asynccontextmanager
    async def bot(self, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
        variables = self.environment | more
        async with running(self.server.url, script=job_bot.__file__, **variables) as process:
            assert await line_of(process) == "ready"
            yield process

    @asynccontextmanager
    async def celery(self, processes: int) -> AsyncIterator[asyncio.subprocess.Process]:
        """A worker of Celery that is ready."""
        command = (CELERY, "-A", "tidegate.jobs.celery", "worker", "-c", str(processes), "-l", "INFO")
        worker = await fork_server.create_process(
            *command,
            cwd=self.folder,
            env=os.environ | self.environment | {"TIDEGATE_JOBS": "system.job_functions"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        is_ready = asyncio.Event()
        reading = asyncio.create_task(_read(worker, is_ready))
        try:
            async with clock.timeout(60):
                await is_ready.wait()
            yield worker
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            await reading
            await worker.wait()

    async def runs(self) -> Counter[str]:
        """How often each job has begun or ended: "nap 3"."""
        text = await in_thread((self.folder / "runs").read_text)
        return Counter(line.rpartition(" ")[0] for line in text.splitlines())

    async def pids(self, what: str) -> set[int]:
        with suppress(FileNotFoundError):
            text = await in_thread((self.folder / "runs").read_text)
            return {int(line.split()[2]) for line in text.splitlines() if line.startswith(f"{what} ")}
        return set()

    def messages(self) -> Counter[tuple[int, str]]:
        """What Telegram has accepted, by chat and text."""
        log = self.server.telegram.request_log.log
        return Counter(
            (one.chat_id - FIRST_CHAT, one.text or one.method)
            for one in log
            if one.status == 200 and isinstance(one.chat_id, int)
        )


async def _read(worker: asyncio.subprocess.Process, is_ready: asyncio.Event) -> None:
    """Read what it prints until it ends: a full pipe would stop it."""
    assert worker.stdout is not None
    while line := await worker.stdout.readline():
        if b" ready." in line:
            is_ready.set()


async def do(process: asyncio.subprocess.Process, line: str) -> Any:  # noqa: ANN401  (as it says)
    return json.loads(await tell(process, line))


async def finish(process: asyncio.subprocess.Process, stage: Stage, messages: int) -> None:
    """Let it stop in good order once so many messages have arrived, or none more do."""
    with suppress(TimeoutError):
        async with clock.timeout(20):
            while stage.messages().total() < messages:
                await clock.sleep(0.05)
    assert process.stdin is not None
    process.stdin.write(b"end\n")
    assert await process.wait() == 0


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    variables = {
        "TIDEGATE_STORE": str(tmp_path / "store.db"),
        "JOB_LOGS": str(tmp_path),
        "PYTHONPATH": TESTS,
        **RATES,
    }
    async with TelegramServer(limits=GENEROUS) as server:
        yield Stage(server, tmp_path, variables)


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    try:
        with rabbitmq_server() as server:
            yield server.url
    except ServerMissing as missing:
        pytest.skip(str(missing))


def broker_of(request: pytest.FixtureRequest) -> dict[str, str]:
    """Started outside of the event loop, which it would block."""
    if request.param == "pool":
        return {}
    return {"CELERY_BROKER_URL": request.getfixturevalue(f"{request.param}_url")}


@pytest.fixture(params=["pool", "redis", pytest.param("rabbitmq", marks=pytest.mark.proof)])
def broker(request: pytest.FixtureRequest) -> dict[str, str]:
    return broker_of(request)


@asynccontextmanager
async def workers(stage: Stage, processes: int) -> AsyncIterator[None]:
    """Workers of Celery, if there is a broker; else those of the bot do the work."""
    if "CELERY_BROKER_URL" not in stage.environment:
        stage.environment["TIDEGATE_JOB_WORKERS"] = str(processes)
        yield
        return
    async with stage.celery(processes):
        yield


@pytest.mark.parametrize(
    ("jobs", "seconds", "processes"), [(60, 0.5, 4), pytest.param(200, 2.0, 12, marks=pytest.mark.proof)]
)
async def test_many_jobs_at_once_keep_nobody_waiting(
    stage: Stage, broker: dict[str, str], jobs: int, seconds: float, processes: int
) -> None:
    stage.environment |= broker
    async with workers(stage, processes), stage.bot() as bot:
        found = await do(bot, f"submit nap {jobs} {seconds}")
        states = await do(bot, f"wait {jobs}")
        await finish(bot, stage, jobs)

    print(found)  # noqa: T201  (seen with -s: a test asserts no timing of a busy machine)
    assert states == {"done": jobs}
    assert stage.messages() == {(number, f"nap {number} is over"): 1 for number in range(jobs)}
    runs = await stage.runs()
    assert all(runs[f"nap {number}"] == 1 for number in range(jobs))


async def test_a_worker_that_is_killed_loses_no_job(stage: Stage, broker: dict[str, str]) -> None:
    stage.environment |= broker
    async with workers(stage, 4), stage.bot() as bot:
        await do(bot, "submit nap 12 0.7")
        async with clock.timeout(60):
            while not (busy := await stage.pids("nap")):
                await clock.sleep(0.05)
        os.kill(busy.pop(), signal.SIGKILL)
        states = await do(bot, "wait 12")
        await finish(bot, stage, 12)

    assert states == {"done": 12}
    assert stage.messages() == {(number, f"nap {number} is over"): 1 for number in range(12)}
    runs = await stage.runs()
    assert sum(runs[f"nap {number}"] for number in range(12)) in {12, 13}


async def test_failures_are_told_after_their_retries_what_hangs_is_ended_and_files_arrive(
    stage: Stage, broker: dict[str, str]
) -> None:
    stage.environment |= broker
    async with workers(stage, 2), stage.bot() as bot:
        await do(bot, "submit broken 3")
        await do(bot, "submit endless 1")
        await do(bot, "submit document 1")
        states = await do(bot, "wait 5")
        await finish(bot, stage, 5)

    assert states == {"dead": 4, "done": 1}
    failed = "Sorry, this did not work. Please try again later."
    told = {(number, "it did not work"): 1 for number in range(3)}
    assert stage.messages() == told | {(0, failed): 1, (0, "sendDocument"): 1}
    attempts = {f"broken {number}": 3 for number in range(3)}  # once, and two retries
    assert await stage.runs() == attempts | {"endless 0": 1}


async def test_a_bot_that_is_killed_runs_its_jobs_again_and_tells_each_user_once(stage: Stage) -> None:
    stage.environment["TIDEGATE_JOB_WORKERS"] = "3"
    async with stage.bot() as bot:
        await do(bot, "submit nap 6 1.0")
        async with clock.timeout(30):
            while not await stage.pids("nap"):
                await clock.sleep(0.02)
        bot.kill()
        await bot.wait()
        children = await stage.pids("nap")
    async with clock.timeout(10):
        while await _some_live(children):  # those of a bot that is gone end by themselves
            await clock.sleep(0.05)
    async with stage.bot() as bot:
        states = await do(bot, "wait 6")
        await finish(bot, stage, 6)

    assert states == {"done": 6}
    assert stage.messages() == {(number, f"nap {number} is over"): 1 for number in range(6)}


@pytest.mark.usefixtures("real_interpreters")
async def test_a_job_that_is_cancelled_while_it_runs_is_stopped(stage: Stage) -> None:
    async with stage.bot() as bot:
        await do(bot, "submit nap 1 60.0")
        async with clock.timeout(30):
            while not (pids := await stage.pids("nap")):
                await clock.sleep(0.02)
        assert await do(bot, "cancel 1") is True
        async with clock.timeout(10):
            while await _some_live(pids):
                await clock.sleep(0.05)
        assert await do(bot, "wait 1") == {"cancelled": 1}
        assert await do(bot, "cancel 1") is False
        await finish(bot, stage, 0)
    assert not stage.messages()


async def test_a_stop_gives_jobs_that_run_back_and_the_next_process_runs_them(stage: Stage) -> None:
    async with stage.bot() as bot:
        await do(bot, "submit nap 1 8.0")
        async with clock.timeout(30):
            while not await stage.pids("nap"):
                await clock.sleep(0.02)
        await finish(bot, stage, 0)
    async with stage.bot() as bot:
        assert await do(bot, "wait 1") == {"done": 1}
        await finish(bot, stage, 1)
    assert await stage.runs() == {"nap 0": 2, "woke 0": 1}
    assert stage.messages() == {(0, "nap 0 is over"): 1}


async def _some_live(pids: set[int]) -> bool:
    return await in_thread(lambda: any(map(_is_alive, pids)))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_jobs_wait_for_a_broker_that_is_down_and_submit_does_not(stage: Stage) -> None:
    async with stage.bot(CELERY_BROKER_URL=CLOSED) as bot:
        async with clock.timeout(20):
            await do(bot, "submit nap 5 0.1")
        await finish(bot, stage, 0)
    assert not await stage.pids("nap")
    async with stage.bot() as bot:  # without a broker, the pool runs them
        assert await do(bot, "wait 5") == {"done": 5}
        await finish(bot, stage, 0)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TIDEGATE_JOBS": "no.such_module"}, "there is no module no.such_module"),
        ({"TIDEGATE_JOBS": ""}, "TIDEGATE_JOBS is not set"),
        ({"TIDEGATE_JOBS": "json"}, "there is no job in json"),
        ({"CELERY_BROKER_URL": ""}, "CELERY_BROKER_URL is not set"),
        ({"CELERY_BROKER_URL": "sqs://x"}, "is of the kind 'sqs': use amqp://"),
    ],
)
async def test_a_worker_says_which_variable_is_wrong(
    stage: Stage, variables: dict[str, str], expected: str
) -> None:
    given = {"CELERY_BROKER_URL": CLOSED, "TIDEGATE_JOBS": "system.job_functions"} | variables
    worker = await fork_server.create_process(
        CELERY,
        "-A",
        "tidegate.jobs.celery",
        "worker",
        cwd=stage.folder,
        env=os.environ | stage.environment | given,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await worker.communicate()
    assert worker.returncode != 0
    assert expected in output.decode()
