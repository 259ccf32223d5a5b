"""The part of the control API that acts for people and changes chats. Bots are named by id."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.telegram.incoming import UNREADABLE
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.world import SUPERGROUP, SimulatedBot

ControlRequest = TypeVar("ControlRequest")

# As Telegram numbers them: 52 bits, people above zero and everything else below.
BotId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
UserId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
GroupId = Annotated[int, msgspec.Meta(lt=0, gt=-(2**52))]
PublicName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{3,31}$")]


class PersonRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody does something, in the private chat with the bot or in a group."""

    bot: BotId
    user: UserId
    chat: GroupId | None = None


class SayRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    text: str


class SendRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    content: dict[str, Any] = {}
    photo: bytes | None = None  # in base64
    document: bytes | None = None


class PressRequest(PersonRequest, forbid_unknown_fields=True):
    data: str | None = None


class VoteRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    options: list[int]


class PayRequest(PersonRequest, forbid_unknown_fields=True):
    link: str | None = None


class InlineQueryRequest(PersonRequest, forbid_unknown_fields=True, kw_only=True):
    text: str
    timeout: float = 10


class JoinRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    chat: GroupId
    joined: bool = True


class BlockRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    blocked: bool = True


class DeactivateRequest(msgspec.Struct, forbid_unknown_fields=True):
    user: UserId


class MigrateRequest(msgspec.Struct, forbid_unknown_fields=True):
    chat: GroupId


class CreateChatRequest(msgspec.Struct, forbid_unknown_fields=True):
    chat: GroupId
    type: Literal["group", "supergroup", "channel"]
    name: PublicName | None = None


class KickRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    chat: GroupId
    kicked: bool = True


class CrowdRequest(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    users: int
    seconds: float
    habits: dict[str, Any] = {}
    seed: int = 0


async def read_request(request: web.Request, kind: type[ControlRequest]) -> ControlRequest:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInputError(str(error)) from error
    except UNREADABLE:
        raise BadInputError("the request cannot be read: send a JSON object") from None


Act = Callable[[web.Request], Awaitable[object]]
# What Telegram tells of a message besides its content.
_NO_CONTENT: Final = frozenset(("message_id", "date", "chat", "from"))


class PeopleControl:
    def __init__(self, telegram: SimulatedTelegram) -> None:
        self._telegram = telegram

    def acts(self) -> dict[str, Act]:
        """What can be ordered, by the last part of its path."""
        return {
            "say": self._say,
            "send": self._send,
            "edit": self._edit,
            "press": self._press,
            "vote": self._vote,
            "pay": self._pay,
            "query": self._query,
            "join": self._join,
            "block": self._block,
            "deactivate": self._deactivate,
            "migrate": self._migrate,
            "chat": self._found,
            "kick": self._kick,
        }

    def bot(self, bot_id: int) -> SimulatedBot:
        bot = self._telegram.world.bots.get(bot_id)
        if bot is None:
            raise BadInputError(f"bot {bot_id} is not known: it has made no call yet")
        return bot

    async def _say(self, request: web.Request) -> object:
        order = await read_request(request, SayRequest)
        with self._person(order) as person:
            return person.says(order.text)

    async def _send(self, request: web.Request) -> object:
        order = await read_request(request, SendRequest)
        if not _NO_CONTENT.isdisjoint(order.content):
            raise BadInputError(
                f"content must not hold {', '.join(sorted(_NO_CONTENT))}: they are given to it"
            )
        with self._person(order) as person:
            caption = order.content.get("caption")
            if order.photo:
                return person.sends_photo(order.photo, caption)
            if order.document:
                return person.sends_file("document", "document", order.document, caption)
            if not order.content:
                raise BadInputError('nothing is sent: give content, such as {"location": {…}}, or a photo')
            return person.sends(**order.content)

    async def _edit(self, request: web.Request) -> object:
        order = await read_request(request, SayRequest)
        with self._person(order) as person:
            return person.edits(order.text)

    async def _press(self, request: web.Request) -> object:
        order = await read_request(request, PressRequest)
        with self._person(order) as person:
            return {"callback_query_id": person.presses(order.data)}

    async def _vote(self, request: web.Request) -> object:
        order = await read_request(request, VoteRequest)
        with self._person(order) as person:
            return person.votes(*order.options)

    async def _pay(self, request: web.Request) -> object:
        order = await read_request(request, PayRequest)
        with self._person(order) as person:
            checkout = person.pays(order.link)
        return {
            "state": checkout.state,
            "total_amount": checkout.total,
            "currency": checkout.invoice.currency,
        }

    async def _query(self, request: web.Request) -> object:
        order = await read_request(request, InlineQueryRequest)
        with self._person(order) as person:
            try:
                return {"results": await person.looks_up(order.text, order.timeout)}
            except TimeoutError:
                raise BadInputError(f"the bot did not answer within {order.timeout:g} s") from None

    async def _join(self, request: web.Request) -> object:
        order = await read_request(request, JoinRequest)
        with self._person(PersonRequest(order.bot, order.user, order.chat)) as person:
            (person.joins if order.joined else person.departs)()
        return {}

    async def _block(self, request: web.Request) -> object:
        order = await read_request(request, BlockRequest)
        now = self._telegram.clock.now()
        self._telegram.world.user_blocks(self.bot(order.bot), order.user, now, blocked=order.blocked)
        return {}

    async def _deactivate(self, request: web.Request) -> object:
        order = await read_request(request, DeactivateRequest)
        self._telegram.world.user(order.user).deactivated = True
        return {}

    async def _migrate(self, request: web.Request) -> object:
        order = await read_request(request, MigrateRequest)
        return {"migrate_to_chat_id": self._telegram.world.migrate(order.chat, self._telegram.clock.now())}

    async def _found(self, request: web.Request) -> object:
        order, world = await read_request(request, CreateChatRequest), self._telegram.world
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
        order, world = await read_request(request, KickRequest), self._telegram.world
        bot = self.bot(order.bot)
        chat = world.chat(bot, order.chat)
        if chat is None:
            raise BadInputError(f"chat {order.chat} does not exist: POST /sim/chat")
        world.kick(bot, chat, self._telegram.clock.now(), kicked=order.kicked)
        return {}

    @contextmanager
    def _person(self, order: PersonRequest) -> Iterator[Person]:
        person = Person(self._telegram, self.bot(order.bot), order.user, chat=order.chat)
        try:
            yield person
        finally:
            person.leaves()
