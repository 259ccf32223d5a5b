"""The control API: read what happened, change the weather, move the people.

| request | does |
|---|---|
| `GET /sim/report` | counts so far |
| `GET /sim/log?bot=&chat=&limit=` | the latest calls, newest last |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST /sim/say` · `/sim/press` · `/sim/block` | a person acts: `{"bot": 42, "user": 1001, …}` |
| `POST /sim/deactivate` · `/sim/migrate` | `{"user": …}` · `{"chat": …}` |
| `POST /sim/chat` · `/sim/kick` | `{"chat": …, "type": …, "name": …}` · `{"bot": …, "chat": …}` |
| `POST`, `GET /sim/crowd` | let a crowd live for a while · how it fares |

Bots are named by id: a token is never needed here.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.telegram.faults import Faults, Latency
from tidegate.sim.telegram.incoming import UNREADABLE, as_json
from tidegate.sim.telegram.ledger import LOG_KEPT
from tidegate.sim.telegram.limits import Limits
from tidegate.sim.telegram.people import Crowd, Habits, Person
from tidegate.sim.telegram.telegram import Telegram
from tidegate.sim.telegram.world import SUPERGROUP, Bot

Options = TypeVar("Options", Faults, Limits, Habits)
Order = TypeVar("Order")
MOST_PEOPLE = 100_000
ARRIVAL = 0.1  # seconds between two looks for the first bot

# As Telegram numbers them: 52 bits, people above zero and everything else below.
BotId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
UserId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
GroupId = Annotated[int, msgspec.Meta(lt=0, gt=-(2**52))]
PublicName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{3,31}$")]


class Say(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    text: str
    chat: GroupId | None = None


class Press(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    data: str | None = None


class Block(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    blocked: bool = True


class Deactivate(msgspec.Struct, forbid_unknown_fields=True):
    user: UserId


class Migrate(msgspec.Struct, forbid_unknown_fields=True):
    chat: GroupId


class Found(msgspec.Struct, forbid_unknown_fields=True):
    chat: GroupId
    type: Literal["group", "supergroup", "channel"]
    name: PublicName | None = None


class Kick(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    chat: GroupId
    kicked: bool = True


class Gather(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    users: int
    seconds: float
    habits: dict[str, Any] = {}
    seed: int = 0


class Control:
    def __init__(self, telegram: Telegram) -> None:
        self._telegram = telegram
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
            web.post("/sim/say", _answering(self._say)),
            web.post("/sim/press", _answering(self._press)),
            web.post("/sim/block", _answering(self._block)),
            web.post("/sim/deactivate", _answering(self._deactivate)),
            web.post("/sim/migrate", _answering(self._migrate)),
            web.post("/sim/chat", _answering(self._found)),
            web.post("/sim/kick", _answering(self._kick)),
            web.post("/sim/crowd", _answering(self._gather)),
            web.get("/sim/crowd", _answering(self._crowd_report)),
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
        self._telegram.faults = change(self._telegram.faults, await _order(request, dict[str, Any]))
        return show(self._telegram.faults)

    async def _limits(self, _: web.Request) -> object:
        return show(self._telegram.flood.limits)

    async def _change_limits(self, request: web.Request) -> object:
        self._telegram.set_limits(change(self._telegram.flood.limits, await _order(request, dict[str, Any])))
        return show(self._telegram.flood.limits)

    async def _say(self, request: web.Request) -> object:
        order = await _order(request, Say)
        bot, now = self._bot(order.bot), self._telegram.clock.now()
        return self._telegram.world.user_says(bot, order.user, order.text, now, order.chat)

    async def _press(self, request: web.Request) -> object:
        order = await _order(request, Press)
        person = Person(self._telegram, self._bot(order.bot), order.user)
        try:
            return {"callback_query_id": person.presses(order.data)}
        finally:
            person.leaves()

    async def _block(self, request: web.Request) -> object:
        order = await _order(request, Block)
        now = self._telegram.clock.now()
        self._telegram.world.user_blocks(self._bot(order.bot), order.user, now, blocked=order.blocked)
        return {}

    async def _deactivate(self, request: web.Request) -> object:
        self._telegram.world.user((await _order(request, Deactivate)).user).deactivated = True
        return {}

    async def _migrate(self, request: web.Request) -> object:
        order = await _order(request, Migrate)
        return {"migrate_to_chat_id": self._telegram.world.migrate(order.chat, self._telegram.clock.now())}

    async def _found(self, request: web.Request) -> object:
        order, world = await _order(request, Found), self._telegram.world
        if (order.type == "group") != (order.chat > SUPERGROUP):
            raise BadInputError(
                f"chat {order.chat} cannot be a {order.type}: ids of supergroups and channels are below "
                f"{SUPERGROUP}, those of groups above"
            )
        if (0, order.chat) in world.chats:
            raise BadInputError(f"chat {order.chat} is there already")
        if order.name and order.name.lower() in world.names:
            raise BadInputError(f"@{order.name} is taken")
        return world.add_group(order.chat, order.type, order.name).json

    async def _kick(self, request: web.Request) -> object:
        order, world = await _order(request, Kick), self._telegram.world
        bot = self._bot(order.bot)
        chat = world.chat(bot, order.chat)
        if chat is None:
            raise BadInputError(f"chat {order.chat} does not exist: POST /sim/chat")
        world.kick(bot, chat, self._telegram.clock.now(), kicked=order.kicked)
        return {}

    async def _gather(self, request: web.Request) -> object:
        order = await _order(request, Gather)
        if not 1 <= order.users <= MOST_PEOPLE or not order.seconds > 0:
            raise BadInputError(f"a crowd has 1 to {MOST_PEOPLE} users and lives for more than 0 seconds")
        if self._crowd_task is not None and not self._crowd_task.done():
            raise BadInputError("a crowd is there already: wait until it has gone (GET /sim/crowd)")
        habits = change(Habits(), order.habits)
        self._crowd = Crowd(
            self._telegram, self._bot(order.bot), users=order.users, habits=habits, seed=order.seed
        )
        self._crowd_task = asyncio.create_task(self._crowd.run(order.seconds), name="crowd")
        return self._crowd.report()

    async def _crowd_report(self, _: web.Request) -> object:
        return self.crowd_report()

    async def _wait_for_bot(self, users: int, seed: int) -> None:
        bots = self._telegram.world.bots
        while not bots:
            await self._telegram.clock.sleep(ARRIVAL)
        self._crowd = Crowd(self._telegram, next(iter(bots.values())), users=users, seed=seed)
        await self._crowd.run(math.inf)

    def _bot(self, bot_id: int) -> Bot:
        bot = self._telegram.world.bots.get(bot_id)
        if bot is None:
            raise BadInputError(f"bot {bot_id} is not known: it has made no call yet")
        return bot


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


async def _order(request: web.Request, kind: type[Order]) -> Order:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInputError(str(error)) from error
    except UNREADABLE:
        raise BadInputError("the request cannot be read: send a JSON object") from None


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
