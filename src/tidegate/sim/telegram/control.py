"""The control API: read what happened, change limits and faults, act for people.

| request | does |
|---|---|
| `GET /sim/report` | counts so far |
| `GET /sim/log?bot=&chat=&limit=` | the latest calls, newest last |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST`, `GET /sim/crowd` | start a crowd · its report |
| `POST /sim/say` and others | act for people, change chats |

Bots are named by id: a token is never needed here.
"""

import asyncio
import math
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.server import change_options, control_handler, option_routes, read_request
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.request_log import LOG_KEPT
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.world import SUPERGROUP
from tidegate.tasks import BackgroundTasks

MOST_PEOPLE = 100_000
BOT_CHECK_INTERVAL = 0.1  # seconds between two looks for the first bot
# As Telegram numbers them: 52 bits, people above zero and everything else below.
BotId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
UserId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
GroupId = Annotated[int, msgspec.Meta(lt=0, gt=-(2**52))]
PublicName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{3,31}$")]
Language = Annotated[str, msgspec.Meta(pattern="^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
# The fields that Telegram adds to the content of a message.
_NO_CONTENT: Final = frozenset(("message_id", "date", "chat", "from"))


class ControlAction(msgspec.Struct):
    async def run(self, telegram: SimulatedTelegram) -> object:
        """Carry out the request; returns its JSON answer."""
        raise NotImplementedError


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
            for entry in reversed(self._telegram.request_log.log)
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


class CrowdRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    users: int
    seconds: float
    habits: dict[str, Any] = {}
    seed: int = 0


class PersonRequest(ControlAction, forbid_unknown_fields=True):
    """A person does something, in the private chat with the bot or in a group."""

    bot: BotId
    user: UserId
    chat: GroupId | None = None
    language: Language | None = None  # of the person's app, from now on

    async def run(self, telegram: SimulatedTelegram) -> object:
        bot = known_bot(telegram, self.bot)
        person = Person(telegram, bot, self.user, chat=self.chat, language=self.language)
        try:
            return await self.act(person)
        finally:
            person.leaves()

    async def act(self, person: Person) -> object:
        raise NotImplementedError


def known_bot(telegram: SimulatedTelegram, bot_id: int) -> SimulatedBot:
    bot = telegram.world.bots.get(bot_id)
    if bot is None:
        raise BadInputError(
            f"bot {bot_id} is not known: it has made no call yet. A bot is known from its first call, "
            "such as getMe: start it, then ask again"
        )
    return bot


class SayRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    text: str

    async def act(self, person: Person) -> object:
        return person.says(self.text)


class EditRequest(SayRequest, forbid_unknown_fields=True):
    async def act(self, person: Person) -> object:
        return person.edits(self.text)


class SendRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    content: dict[str, Any] = {}
    photo: bytes | None = None  # in base64
    document: bytes | None = None

    async def act(self, person: Person) -> object:
        if not _NO_CONTENT.isdisjoint(self.content):
            raise BadInputError(
                f"content must not hold {', '.join(sorted(_NO_CONTENT))}: the simulator adds them"
            )
        for kind in ("photo", "document"):
            if isinstance(self.content.get(kind), str):
                raise BadInputError(f"content.{kind} is a text: give {kind} beside content, in base64")
        caption = self.content.get("caption")
        if self.photo:
            return person.sends_photo(self.photo, caption)
        if self.document:
            return person.sends_file("document", "document", self.document, caption)
        if not self.content:
            raise BadInputError('nothing is sent: give content, such as {"location": {…}}, or a photo')
        return person.sends(**self.content)


class PressRequest(PersonRequest, forbid_unknown_fields=True):
    data: str | None = None
    label: str | None = None

    async def act(self, person: Person) -> object:
        return {"callback_query_id": person.presses(self.data, label=self.label)}


class TapRequest(PersonRequest, forbid_unknown_fields=True):
    label: str | None = None

    async def act(self, person: Person) -> object:
        return person.taps(self.label)


class VoteRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    options: list[int]

    async def act(self, person: Person) -> object:
        return person.votes(*self.options)


class PayRequest(PersonRequest, forbid_unknown_fields=True):
    link: str | None = None

    async def act(self, person: Person) -> object:
        checkout = person.pays(self.link)
        currency = checkout.invoice.currency
        return {"state": checkout.state, "total_amount": checkout.total, "currency": currency}


class InlineQueryRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    text: str
    timeout: float = 10

    async def act(self, person: Person) -> object:
        try:
            return {"results": await person.looks_up(self.text, self.timeout)}
        except TimeoutError:
            raise BadInputError(f"the bot did not answer within {self.timeout:g} s") from None


class JoinRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    chat: GroupId
    joined: bool = True

    async def act(self, person: Person) -> object:
        (person.joins if self.joined else person.departs)()
        return {}


class BlockRequest(ControlAction, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    blocked: bool = True

    async def run(self, telegram: SimulatedTelegram) -> object:
        bot = known_bot(telegram, self.bot)
        telegram.world.user_blocks(bot, self.user, telegram.clock.now(), blocked=self.blocked)
        return {}


class DeactivateRequest(ControlAction, forbid_unknown_fields=True):
    user: UserId

    async def run(self, telegram: SimulatedTelegram) -> object:
        telegram.world.user(self.user).deactivated = True
        return {}


class MigrateRequest(ControlAction, forbid_unknown_fields=True):
    chat: GroupId

    async def run(self, telegram: SimulatedTelegram) -> object:
        return {"migrate_to_chat_id": telegram.world.migrate(self.chat, telegram.clock.now())}


class CreateChatRequest(ControlAction, forbid_unknown_fields=True):
    chat: GroupId
    type: Literal["group", "supergroup", "channel"]
    name: PublicName | None = None

    async def run(self, telegram: SimulatedTelegram) -> object:
        world = telegram.world
        if (self.type == "group") != (self.chat > SUPERGROUP):
            raise BadInputError(
                f"chat {self.chat} cannot be a {self.type}: ids of supergroups and channels are below "
                f"{SUPERGROUP}, those of groups above"
            )
        if (0, self.chat) in world.chats:
            raise BadInputError(f"chat {self.chat} is there already")
        if self.name and self.name.lower() in world.names:
            raise BadInputError(f"@{self.name} is taken")
        return world.add_group(self.chat, self.type, self.name).json


class KickRequest(ControlAction, forbid_unknown_fields=True):
    bot: BotId
    chat: GroupId
    kicked: bool = True

    async def run(self, telegram: SimulatedTelegram) -> object:
        bot = known_bot(telegram, self.bot)
        chat = telegram.world.chat(bot, self.chat)
        if chat is None:
            raise BadInputError(f"chat {self.chat} does not exist: POST /sim/chat")
        telegram.world.kick(bot, chat, telegram.clock.now(), kicked=self.kicked)
        return {}


# By the last part of the path.
ACTIONS: Final[dict[str, type[ControlAction]]] = {
    "say": SayRequest,
    "send": SendRequest,
    "edit": EditRequest,
    "press": PressRequest,
    "tap": TapRequest,
    "vote": VoteRequest,
    "pay": PayRequest,
    "query": InlineQueryRequest,
    "join": JoinRequest,
    "block": BlockRequest,
    "deactivate": DeactivateRequest,
    "migrate": MigrateRequest,
    "chat": CreateChatRequest,
    "kick": KickRequest,
}
