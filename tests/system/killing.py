"""Processes that are there to be killed, and what can be said of a store after it.

Run as a script, this is such a process: `sender STORE URL SEED` delivers what a store holds and makes direct
calls beside it, `producer STORE NAME` puts messages and prints the ticket of each that was accepted, `worker
STORE URL` delivers and puts what it is told to, `broadcaster STORE ROWS` accepts a broadcast, `opener` opens
the stores it is told to, `guest STORE` is nobody who may write, `crowded STORE URL` is a sender whose disk is
full for a while, `mortal STORE URL` delivers until nothing is left, and dies of a message that contains
POISON.
"""

import asyncio
import os
import random
import resource
import signal
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import fork_server
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import StoreError, TidegateError
from tidegate.model import Rate
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.request_log import LoggedCall

T = TypeVar("T")

TOKEN: Final = "42:token"
POISON: Final = "poison"
NOBODY: Final = 65534
# Several times what Telegram allows, so that a run takes seconds. A group's window outlives a restart.
BOT, PRIVATE, GROUP = Rate(50, 0.25), Rate(1, 0.25), Rate(4, 2.5)
LIMITS: Final = Limits(burst=1, bot=BOT, private=PRIVATE, group=GROUP)
RATES: Final = {
    "TIDEGATE_BOT_RATE": str(BOT),
    "TIDEGATE_CHAT_RATE": str(PRIVATE),
    "TIDEGATE_REPLY_BURST": "1",
    "TIDEGATE_GROUP_RATE": str(GROUP),
}
TESTS: Final = str(Path(__file__).parents[1])
OURS: Final = ("TIDEGATE_", "TELEGRAM_", "REDIS_URL", "DATABASE_URL")
clock: Final = Clock()


@asynccontextmanager
async def running(
    *arguments: str, script: str = __file__, **variables: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is killed at the end, if it has not ended by then."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    process = await fork_server.create_process(
        sys.executable,
        script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=kept | RATES | {"PYTHONPATH": TESTS} | variables,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    """The next line that it says; an empty one if it has ended."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip("\n")


async def tell(process: asyncio.subprocess.Process, line: str) -> str:
    """What it answers."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())
    return await line_of(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """It ends well."""
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


async def kill(process: asyncio.subprocess.Process) -> str:
    """As kill -9; what it had said and nobody had read."""
    assert process.stdout is not None
    process.send_signal(signal.SIGKILL)
    said = (await process.stdout.read()).decode()
    await process.wait()
    return said


def ask(store: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What is in the file, asked by nobody who could mend it. Blocks."""
    with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(query, values).fetchall()


async def asked(store: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    return await in_thread(ask, store, query, *values)


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def arrivals(log: Iterable[LoggedCall]) -> Mapping[int, list[str]]:
    """The texts that Telegram accepted for each chat, in order."""
    texts: defaultdict[int, list[str]] = defaultdict(list)
    for entry in log:
        if entry.status == 200 and isinstance(entry.chat_id, int) and "#" in entry.text:
            texts[entry.chat_id].append(entry.text)
    return texts


async def send(store: str, url: str, seed: str) -> None:
    """Deliver until nothing is left."""
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            _say("sending")
            calls = [asyncio.create_task(_call(gate, random.Random(f"{seed} {task}"))) for task in range(4)]
            await gate.drained()
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    _say("drained")


async def _call(gate: Tidegate, draw: random.Random) -> None:
    """What a bot answers by itself, beside its queue."""
    while True:
        chat = draw.choice((*range(1, 4), *range(-1, -7, -1)))
        with suppress(TidegateError):
            await gate.call("sendMessage", {"chat_id": chat, "text": "direct"}, max_wait=0.5)
        await clock.sleep(draw.uniform(0, 0.05))


async def send_until_poisoned(store: str, url: str) -> None:
    """As a library in C would die of a message, when it is about to be written."""
    call = BotApiClient.call

    async def deadly(
        self: BotApiClient,
        token: str,
        method: str,
        params: Mapping[str, Any],
        **rest: Any,  # noqa: ANN401
    ) -> ApiAnswer | NoAnswer:
        if POISON in params["text"]:
            os._exit(139)
        return await call(self, token, method, params, **rest)

    BotApiClient.call = deadly  # type: ignore[method-assign]
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            _say("sending")
            await gate.drained()
    _say("drained")


async def work(store: str, url: str) -> None:
    """Deliver until the input ends. Each line of it, `CHAT TEXT`, is put and answered with its ticket."""
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            _say("sending")
            while line := await _told():
                chat, _, text = line.partition(" ")
                _say((await gate.send(chat_id=chat, text=text)).id)


async def open_stores() -> None:
    """Each line names a file, opened for one message and closed; or asks for a state: `? FILE TICKET`."""
    _say("ready")
    while line := await _told():
        if line.startswith("? "):
            _, store, ticket = line.split(" ")
            [[state]] = ask(Path(store), "SELECT state FROM messages WHERE id = ?", ticket)
            _say(str(state))
            continue
        async with Tidegate(line) as gate:
            gate.add_bot(TOKEN)
            _say((await gate.send(chat_id=1, text="x")).id)


async def visit(store: str) -> None:
    """Root may do everything, and is somebody else here."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        async with Tidegate(store) as gate:
            gate.add_bot(TOKEN)
            await gate.send(chat_id=1, text="x")
        _say("accepted")
    except TidegateError as error:
        _say(str(error))


async def deliver_without_space(store: str, url: str) -> None:
    """Says what happened at each stage, and ends without saying goodbye to the store."""
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            await gate.send_many([{"chat_id": 1, "text": f"full #{number}"} for number in range(40)])
            _fill()
            try:
                await gate.send(chat_id=2, text="too much")
            except StoreError as error:
                _say(str(error))
            await gate.drained()
            _say(f"{(await gate.stats()).delivered} delivered")
            _make_room()
            ticket = await gate.send(chat_id=2, text="room again #0")
            await ticket.delivered()
            _say(f"{(await gate.stats()).delivered} delivered")
            os._exit(0)


def _fill() -> None:
    """No file may grow beyond what is written by now: the log of writes least of all."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def _make_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def _told() -> str:
    line: str = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line.rstrip("\n")


async def produce(store: str, name: str) -> None:
    """Single messages and batches from many tasks, as fast as they are accepted."""
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN)

        async def singles(task: int) -> None:
            for number in range(100_000):
                ticket = await gate.send(chat_id=task + 1, text=f"{name} {number}")
                _say(ticket.id)

        async def batches(task: int) -> None:
            for number in range(100_000):
                items = [{"chat_id": chat + 1, "text": f"{name} {number}"} for chat in range(20 + task)]
                tickets = await gate.send_many(items)
                _say("\n".join(ticket.id for ticket in tickets))

        await asyncio.gather(*map(singles, range(20)), *map(batches, range(3)))


async def broadcast(store: str, rows: str) -> None:
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN)
        people = [{"chat_id": 1001 + n, "name": f"person-{n}"} for n in range(int(rows))]
        await gate.start_broadcast("sale", people, "Hello {name}!", ahead=60)  # nobody sends: the rest waits
        _say("accepted")
        await asyncio.Event().wait()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    roles: dict[str, Callable[..., Coroutine[None, None, None]]]
    roles = {"sender": send, "producer": produce, "worker": work, "opener": open_stores}
    roles |= {
        "broadcaster": broadcast,
        "guest": visit,
        "crowded": deliver_without_space,
        "mortal": send_until_poisoned,
    }
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
