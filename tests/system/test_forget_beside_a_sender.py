"""`tidegate forget` beside a running sender: nothing of the chat is left in the files, others get theirs."""

import asyncio
import json
import re
import sys
from pathlib import Path

import fork_server
from system.killing import TOKEN, arrivals, clock, line_of, running
from tidegate import Tidegate
from tidegate.database.idempotency import OnceKey, SqlIdempotency
from tidegate.model import BotId, Rate
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.http import TelegramServer

BOT, CHAT = BotId(42), 1001
TEXTS = 2_000
OTHERS = range(5_000, 5_200)
MARK = re.compile(rb"secret-of-1001-\d+")
RATES = {"TIDEGATE_BOT_RATE": "300/1", "TIDEGATE_CHAT_RATE": "30/1"}
LIMITS = Limits(bot=Rate(300, 1), private=Rate(30, 1))


async def test_nothing_of_a_forgotten_chat_is_left_in_the_files_beside_a_running_sender(
    tmp_path: Path,
) -> None:
    store = tmp_path / "tidegate.db"
    async with (
        TelegramServer(limits=LIMITS) as server,
        running("worker", str(store), server.url, **RATES) as sender,
        Tidegate(store) as gate,
    ):
        assert await line_of(sender) == "sending"
        gate.add_bot(TOKEN)
        theirs = [
            {
                "chat_id": CHAT,
                "text": f"secret-of-1001-{n} #{'x' * (n % 500)}",
                "dedup_key": f"secret-of-1001-{n}",
            }
            for n in range(TEXTS)
        ]
        await gate.send_many(theirs, bot=BOT)
        await gate.send_many([{"chat_id": chat, "text": f"kept #{chat}"} for chat in OTHERS], bot=BOT)
        answers, key = SqlIdempotency(lambda: gate.database), OnceKey("token:1", "k")
        await answers.begin(key, b"", clock.now())
        await answers.finish(key, 201, b'{"text": "secret-of-1001-0"}')  # what the API has answered
        while not arrivals(server.telegram.request_log.log).get(CHAT):
            await clock.sleep(0.02)

        reports = [await asyncio.to_thread(_forget, store)]
        while reports[-1]["sending"]:  # it has to be called again, as it says
            reports.append(await asyncio.to_thread(_forget, store))
        reports.append(await asyncio.to_thread(_forget, store))  # what ended meanwhile
        found = await asyncio.to_thread(_found_in, tmp_path)
        async with clock.timeout(30):
            await gate.drained(BOT)

    arrived = arrivals(server.telegram.request_log.log)
    assert found == set()
    assert sum(report["erased"] for report in reports) == TEXTS
    assert [list(arrived[chat]) for chat in OTHERS] == [[f"kept #{chat}"] for chat in OTHERS]


def _forget(store: Path) -> dict[str, int]:
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "forget",
        str(CHAT),
        "--yes",
        "--json",
        "--store",
        str(store),
    ]
    done = fork_server.run(command, capture_output=True, text=True, check=True, timeout=40)
    report: dict[str, int] = json.loads(done.stdout)
    return report


def _found_in(folder: Path) -> set[bytes]:
    return {mark for path in folder.iterdir() for mark in MARK.findall(path.read_bytes())}
