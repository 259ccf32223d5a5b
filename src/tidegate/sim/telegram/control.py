"""The control API: read what happened, change the weather, move the people.

| request | does |
|---|---|
| `GET /sim/report` | counts so far |
| `GET /sim/log?bot=&chat=&limit=` | the latest calls, newest last |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST`, `GET /sim/crowd` | let a crowd live for a while · how it fares |
| `POST /sim/say` and others | people and chats are moved: `moves.py` |

Bots are named by id: a token is never needed here.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.faults import Faults, Latency
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.incoming import as_json
from tidegate.sim.telegram.people_control import CrowdRequest, PeopleControl, read_request
from tidegate.sim.telegram.request_log import LOG_KEPT
from tidegate.sim.telegram.telegram import SimulatedTelegram

Options = TypeVar("Options", Faults, Limits, Habits)
MOST_PEOPLE = 100_000
BOT_CHECK_INTERVAL = 0.1  # seconds between two looks for the first bot


class TelegramControl:
    def __init__(self, telegram: SimulatedTelegram) -> None:
        self._telegram = telegram
        self._moves = PeopleControl(telegram)
        self._crowd: Crowd | None = None
        self._crowd_task: asyncio.Task[None] | None = None
        self._expected = 0  # people who wait for a bot

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/sim/report", _answering(self._report)),
            web.get("/sim/log", _answering(self._log)),
            web.post("/sim/reset", _answering(self._reset)),
            web.get("/sim/faults", _answering(self._faults)),
            web.patch("/sim/faults", _answering(self._change_faults)),
            web.get("/sim/limits", _answering(self._limits)),
            web.patch("/sim/limits", _answering(self._change_limits)),
            web.post("/sim/crowd", _answering(self._gather)),
            web.get("/sim/crowd", _answering(self._crowd_report)),
            *(web.post(f"/sim/{name}", _answering(act)) for name, act in self._moves.acts().items()),
        ]

    def gather_for_first_bot(self, users: int, seed: int) -> None:
        """Let a crowd wait until a bot makes a call, then write to it for as long as it may."""
        self._expected = users
        self._crowd_task = asyncio.create_task(self._wait_for_bot(users, seed), name="crowd")

    def crowd_report(self) -> dict[str, Any]:
        """How the crowd fares. Raises BadInputError if there is none."""
        if self._crowd_task is None:
            raise BadInputError("there is no crowd yet: POST /sim/crowd")
        fares = self._crowd.report() if self._crowd else {"users": self._expected, "said": 0}
        return fares | {"running": not self._crowd_task.done()}

    async def close(self) -> None:
        if self._crowd_task is not None:
            self._crowd_task.cancel()
            await asyncio.gather(self._crowd_task, return_exceptions=True)

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

    async def _faults(self, _: web.Request) -> object:
        return show(self._telegram.faults)

    async def _change_faults(self, request: web.Request) -> object:
        self._telegram.faults = change(self._telegram.faults, await read_request(request, dict[str, Any]))
        return show(self._telegram.faults)

    async def _limits(self, _: web.Request) -> object:
        return show(self._telegram.flood.limits)

    async def _change_limits(self, request: web.Request) -> object:
        self._telegram.set_limits(
            change(self._telegram.flood.limits, await read_request(request, dict[str, Any]))
        )
        return show(self._telegram.flood.limits)

    async def _gather(self, request: web.Request) -> object:
        order = await read_request(request, CrowdRequest)
        if not 1 <= order.users <= MOST_PEOPLE or not order.seconds > 0:
            raise BadInputError(f"a crowd has 1 to {MOST_PEOPLE} users and lives for more than 0 seconds")
        if self._crowd_task is not None and not self._crowd_task.done():
            raise BadInputError("a crowd is there already: wait until it has gone (GET /sim/crowd)")
        habits = change(Habits(), order.habits)
        self._crowd = Crowd(
            self._telegram, self._moves.bot(order.bot), users=order.users, habits=habits, seed=order.seed
        )
        self._crowd_task = asyncio.create_task(self._crowd.run(order.seconds), name="crowd")
        return self._crowd.report()

    async def _crowd_report(self, _: web.Request) -> object:
        return self.crowd_report()

    async def _wait_for_bot(self, users: int, seed: int) -> None:
        bots = self._telegram.world.bots
        while not bots:
            await self._telegram.clock.sleep(BOT_CHECK_INTERVAL)
        self._crowd = Crowd(self._telegram, next(iter(bots.values())), users=users, seed=seed)
        await self._crowd.run(math.inf)


def show(options: Faults | Limits | Habits) -> dict[str, Any]:
    """Options as JSON, rates and latencies in the form that people write."""
    shown: dict[str, Any] = msgspec.to_builtins(options, enc_hook=str)
    return shown


def change(options: Options, changes: dict[str, Any]) -> Options:
    """The same options but for `changes`, as JSON. Raises BadInputError for what cannot be."""
    try:
        return msgspec.convert(show(options) | changes, type(options), dec_hook=_parse)
    except msgspec.ValidationError as error:
        raise BadInputError(str(error)) from error


def _parse(kind: type[Rate | Latency], text: object) -> Rate | Latency:
    return kind.parse(str(text))


def _answering(
    act: Callable[[web.Request], Awaitable[object]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """JSON for what `act` returns; a 400 with one line for what was asked wrongly."""

    async def handler(request: web.Request) -> web.Response:
        try:
            status, body = 200, await act(request)
        except (ValueError, LookupError) as error:  # BadInputError is a ValueError
            status, body = 400, {"error": str(error.args[0])}
        return as_json(status, body)

    return handler
