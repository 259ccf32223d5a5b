"""The control API: read what happened, change limits and faults, act for people.

| request | does |
|---|---|
| `GET /sim/report` | counts so far |
| `GET /sim/log?bot=&chat=&limit=` | the latest calls, newest last |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST`, `GET /sim/crowd` | start a crowd · its report |
| `POST /sim/say` and others | act for people, change chats: `people_control.py` |

Bots are named by id: a token is never needed here.
"""

import asyncio
import math
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.server import change_options, control_handler, option_routes, read_request
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.people_control import ACTIONS, BotId, ControlAction, known_bot
from tidegate.sim.telegram.request_log import LOG_KEPT
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.tasks import BackgroundTasks

MOST_PEOPLE = 100_000
BOT_CHECK_INTERVAL = 0.1  # seconds between two looks for the first bot


class CrowdRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    users: int
    seconds: float
    habits: dict[str, Any] = {}
    seed: int = 0


class TelegramControl:
    def __init__(self, telegram: SimulatedTelegram) -> None:
        self._telegram = telegram
        self._crowd: Crowd | None = None
        self._crowd_task: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()
        self._expected = 0  # people who wait for a bot

    def routes(self) -> list[web.RouteDef]:
        telegram = self._telegram
        return [
            web.get("/sim/report", control_handler(self._report)),
            web.get("/sim/log", control_handler(self._log)),
            web.post("/sim/reset", control_handler(self._reset)),
            web.post("/sim/crowd", control_handler(self._start_crowd)),
            web.get("/sim/crowd", control_handler(self._crowd_report)),
            *option_routes("faults", lambda: telegram.faults, partial(setattr, telegram, "faults")),
            *option_routes("limits", lambda: telegram.flood.limits, telegram.set_limits),
            *(
                web.post(f"/sim/{name}", control_handler(partial(self._act, kind=kind)))
                for name, kind in ACTIONS.items()
            ),
        ]

    def gather_for_first_bot(self, users: int, seed: int) -> None:
        """Start a crowd that waits until a bot makes a call, then writes to it without end."""
        self._expected = users
        self._crowd_task = self._tasks.start(self._wait_for_bot(users, seed), "crowd")

    def crowd_report(self) -> dict[str, Any]:
        """Return the counts of the crowd. Raises BadInputError if there is none."""
        if self._crowd_task is None:
            raise BadInputError("there is no crowd yet: POST /sim/crowd")
        counts = self._crowd.report() if self._crowd else {"users": self._expected, "said": 0}
        return counts | {"running": not self._crowd_task.done()}

    async def close(self) -> None:
        await self._tasks.stop()

    async def _act(self, request: web.Request, *, kind: type[ControlAction]) -> object:
        return await (await read_request(request, kind)).run(self._telegram)

    async def _report(self, _: web.Request) -> object:
        return self._telegram.report()

    async def _log(self, request: web.Request) -> object:
        bot, chat = request.query.get("bot"), request.query.get("chat")
        limit = request.query.get("limit", "100")
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= LOG_KEPT):
            raise BadInputError(f"limit must be a number from 1 to {LOG_KEPT}")
        found = (
            entry._asdict()
            for entry in reversed(self._telegram.ledger.log)
            if (bot is None or str(entry.bot) == bot) and (chat is None or str(entry.chat_id) == chat)
        )
        return {"log": list(islice(found, int(limit)))[::-1]}

    async def _reset(self, _: web.Request) -> object:
        self._telegram.reset()
        return {}

    async def _start_crowd(self, request: web.Request) -> object:
        order = await read_request(request, CrowdRequest)
        if not 1 <= order.users <= MOST_PEOPLE or not order.seconds > 0:
            raise BadInputError(f"a crowd has 1 to {MOST_PEOPLE} users and lives for more than 0 seconds")
        if self._crowd_task is not None and not self._crowd_task.done():
            raise BadInputError("a crowd is there already: wait until it has gone (GET /sim/crowd)")
        habits = change_options(Habits(), order.habits)
        bot = known_bot(self._telegram, order.bot)
        self._crowd = Crowd(self._telegram, bot, users=order.users, habits=habits, seed=order.seed)
        self._crowd_task = self._tasks.start(self._crowd.run(order.seconds), "crowd")
        return self._crowd.report()

    async def _crowd_report(self, _: web.Request) -> object:
        return self.crowd_report()

    async def _wait_for_bot(self, users: int, seed: int) -> None:
        bots = self._telegram.world.bots
        while not bots:
            await self._telegram.clock.sleep(BOT_CHECK_INTERVAL)
        self._crowd = Crowd(self._telegram, next(iter(bots.values())), users=users, seed=seed)
        await self._crowd.run(math.inf)
