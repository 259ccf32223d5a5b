"""How long each route of the API that only reads takes, with a million messages queued and in history.

    python benchmarks/api_reads.py [--rows 1000000] [--store file|redis] [--folder DIR] [--json]

One process on a SQLite file, or on a private Redis, and its database, which is a file. Routes are taken from
the API itself: a new one is measured, too. Each is asked ten times; the worst counts. What is filled in takes
a minute or two for a million.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import uvloop
from pydantic import SecretStr
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.outbox_subject import RULES, STORE, TEXT
from benchmarks.redis_rounds import private_redis

from tidegate import Tidegate
from tidegate.history import HistoryRow
from tidegate.jobs.record import NewJob
from tidegate.model import BotId, Dead, Settlement
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import ServiceApp, declared_routes, make_api
from tidegate.ops.api.pagination import encode_cursor
from tidegate.settings import Settings

DATABASE = "data.db"
LONG_STEP = 5_000  # microseconds
FIRST_NUMBER = 10**13  # in Redis, where a message takes two
BOT, OTHER_BOT = BotId(42), BotId(43)
CHATS, TRIES, TARGET_MS, BATCH, CLAIMED = 5_000, 10, 200.0, 1_000, 500
QUERIES = {
    "/api/v1/messages": [
        "",
        f"?bot={BOT}",
        "?chat_id=1000007",
        "?state=dead",
        "?state=retry",
        "?reason=blocked",
        "?limit=200",
        "?cursor={middle}",
        f"?bot={OTHER_BOT}&state=queued&limit=200",
    ],
    "/api/v1/dead-letters": ["", "?reason=attempts", "?chat_id=1000007"],
    "/api/v1/history": [
        "",
        f"?bot={OTHER_BOT}",
        "?chat_id=1000007",
        "?direction=in",
        "?state=dead",
        "?limit=200",
    ],
    "/api/v1/history/search": ["?text=Thursday", "?text=order+17*", "?text=nowhere"],
}


async def fill(gate: Tidegate, rows: int, *, is_file: bool = True) -> dict[str, str]:
    """Fill outbox and history; return what stands for the parameters in paths."""
    tickets = []
    for bot, share in ((BOT, rows * 9 // 10), (OTHER_BOT, rows // 10)):
        items = ({"chat_id": 1_000_000 + i % CHATS, "text": f"{TEXT} #{i}"} for i in range(share))
        tickets = await gate.send_many(items, bot=bot)
    store = await gate.history.opened()
    for first in range(0, rows, BATCH):
        await store.write([row(number) for number in range(first, min(first + BATCH, rows))])
    await gate.reminders.add(1, bot=BOT, text="Hi", at="09:00", every="day", zone="UTC")
    await gate.jobs.submit(NewJob(name="label", chat_id=1), bot=BOT)
    await gate.start_broadcast("sale", range(1, 1_000), "Our sale begins today", bot=BOT)
    letter = ""
    await gate.outbox.start_sending()
    for _ in range(max(1, rows // 100 // CLAIMED)):  # dead letters
        claims = await gate.outbox.claim(CLAIMED)
        letter = claims[-1].message.id
        await gate.outbox.settle([Settlement(claim, Dead("blocked", "")) for claim in claims])
    return {
        "dead-letters/{message_id}": f"dead-letters/{letter}",
        "{message_id}": tickets[-1].id,
        "{middle}": encode_cursor("messages", str(rows // 2 if is_file else FIRST_NUMBER + rows)) or "",
        "{bot}": str(BOT),
        "{chat_id}": "1000007",
        "{telegram_id}": "3",
        "{reminder_id}": "1",
        "{job_id}": "1",
        "{name}": "sale",
    }


def row(number: int) -> HistoryRow:
    """Three of four went out; every hundredth is dead."""
    state = "received" if number % 4 == 0 else "dead" if number % 100 == 1 else "delivered"
    return HistoryRow(
        key=f"k{number}",
        bot=OTHER_BOT if number % 10 == 0 else BOT,
        direction="in" if state == "received" else "out",
        chat_id=str(1_000_000 + number % CHATS),
        telegram_message_id=number // CHATS,
        reply_to_message_id=number // CHATS - 1 if number % 3 == 0 and number >= CHATS else None,
        user_id=None,
        kind="message" if state == "received" else "sendMessage",
        is_change=False,
        text=f"{TEXT} #{number}",
        state=state,
        reason="blocked" if state == "dead" else None,
        description=None,
        ticket=f"t{number}",
        priority="normal",
        attempts=1,
        created_at=1_760_000_000.0 + number,
        ended_at=1_760_000_000.0 + number,
    )


async def get(app: ServiceApp, token: str, path: str) -> tuple[int, float]:
    """Return the status and the milliseconds of a request."""
    status, is_read = 0, False
    name, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": name,
        "raw_path": name.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
        "headers": [(b"authorization", f"Bearer {token}".encode())],
    }

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if is_read:  # as a server: whoever streams an answer waits here for the client to go
            await asyncio.Event().wait()
        is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    started = time.perf_counter()
    await app(scope, receive, send)
    return status, 1e3 * (time.perf_counter() - started)


def paths(values: dict[str, str]) -> Iterator[str]:
    for route in declared_routes():
        if route.method == "GET":
            for query in QUERIES.get(route.path, [""]):
                path = route.path + query
                for name, value in values.items():
                    path = path.replace(name, value)
                yield path


async def measure(
    store: Path | str, folder: Path, rows: int, filled: Callable[[], object] = time.monotonic
) -> dict[str, dict[str, float]]:
    database = SecretStr(f"sqlite:///{folder / DATABASE}")
    gate = Tidegate(store, rules=RULES, settings=Settings(database_url=database))
    for bot in (BOT, OTHER_BOT):
        gate.add_bot(f"{bot}:token")
    access = AccessControl.of(gate.core)
    app = make_api(gate, access)
    await app.start()
    found: dict[str, dict[str, float]] = {}
    try:
        started = time.perf_counter()
        values = await fill(gate, rows, is_file=isinstance(store, Path))
        filled()
        print(f"filled in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        token = (await access.create_token("benchmark", "admin")).secret
        await get(app, token, "/openapi.json")  # made once, in a thread
        for path in paths(values):
            await get(app, token, path)  # the first one of a kind opens and imports something
            times = [await get(app, token, path) for _ in range(TRIES)]
            milliseconds = sorted(one for _, one in times)
            found[path] = {
                "status": times[0][0],
                "median_ms": milliseconds[TRIES // 2],
                "worst_ms": milliseconds[-1],
            }
    finally:
        await app.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Routes that read, measured.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("file", "redis"), default="file", help="the store of the queue")
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    fresh = Path(tempfile.mkdtemp(prefix="api-reads-", dir=options.folder.resolve()))
    try:
        if options.store == "file":
            found = uvloop.run(measure(fresh / STORE, fresh, options.rows))
        else:
            with private_redis() as (url, client):
                client.config_set("slowlog-log-slower-than", LONG_STEP)
                found = uvloop.run(measure(url, fresh, options.rows, client.slowlog_reset))
                steps = [one["duration"] / 1e3 for one in client.slowlog_get(-1)]
            print(f"longest steps of Redis, ms: {sorted(steps)[-10:]}", file=sys.stderr)
    finally:
        shutil.rmtree(fresh)
    if options.json:
        print(json.dumps(found))
        return
    shown = Table("route", "status", "median ms", "worst ms", f"< {TARGET_MS:.0f} ms", box=MARKDOWN)
    for path, one in found.items():
        met = "yes" if one["worst_ms"] < TARGET_MS else "NO"
        shown.add_row(path, f"{one['status']:.0f}", f"{one['median_ms']:.1f}", f"{one['worst_ms']:.1f}", met)
    Console(width=140).print(shown, highlight=False)


if __name__ == "__main__":
    main()
