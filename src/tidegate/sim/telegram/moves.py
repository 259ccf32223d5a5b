"""The part of the control API that moves people and chats. Bots are named by id: no token is needed."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.telegram import orders
from tidegate.sim.telegram.orders import read_order
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import Telegram
from tidegate.sim.telegram.world import SUPERGROUP, Bot

Act = Callable[[web.Request], Awaitable[object]]
# What Telegram tells of a message besides its content.
_NO_CONTENT: Final = frozenset(("message_id", "date", "chat", "from"))


class Moves:
    def __init__(self, telegram: Telegram) -> None:
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

    def bot(self, bot_id: int) -> Bot:
        bot = self._telegram.world.bots.get(bot_id)
        if bot is None:
            raise BadInputError(f"bot {bot_id} is not known: it has made no call yet")
        return bot

    async def _say(self, request: web.Request) -> object:
        order = await read_order(request, orders.Say)
        with self._person(order) as person:
            return person.says(order.text)

    async def _send(self, request: web.Request) -> object:
        order = await read_order(request, orders.Send)
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
        order = await read_order(request, orders.Say)
        with self._person(order) as person:
            return person.edits(order.text)

    async def _press(self, request: web.Request) -> object:
        order = await read_order(request, orders.Press)
        with self._person(order) as person:
            return {"callback_query_id": person.presses(order.data)}

    async def _vote(self, request: web.Request) -> object:
        order = await read_order(request, orders.Vote)
        with self._person(order) as person:
            return person.votes(*order.options)

    async def _pay(self, request: web.Request) -> object:
        order = await read_order(request, orders.Pay)
        with self._person(order) as person:
            checkout = person.pays(order.link)
        return {
            "state": checkout.state,
            "total_amount": checkout.total,
            "currency": checkout.invoice.currency,
        }

    async def _query(self, request: web.Request) -> object:
        order = await read_order(request, orders.Query)
        with self._person(order) as person:
            try:
                return {"results": await person.looks_up(order.text, order.timeout)}
            except TimeoutError:
                raise BadInputError(f"the bot did not answer within {order.timeout:g} s") from None

    async def _join(self, request: web.Request) -> object:
        order = await read_order(request, orders.Join)
        with self._person(orders.Move(order.bot, order.user, order.chat)) as person:
            (person.joins if order.joined else person.departs)()
        return {}

    async def _block(self, request: web.Request) -> object:
        order = await read_order(request, orders.Block)
        now = self._telegram.clock.now()
        self._telegram.world.user_blocks(self.bot(order.bot), order.user, now, blocked=order.blocked)
        return {}

    async def _deactivate(self, request: web.Request) -> object:
        order = await read_order(request, orders.Deactivate)
        self._telegram.world.user(order.user).deactivated = True
        return {}

    async def _migrate(self, request: web.Request) -> object:
        order = await read_order(request, orders.Migrate)
        return {"migrate_to_chat_id": self._telegram.world.migrate(order.chat, self._telegram.clock.now())}

    async def _found(self, request: web.Request) -> object:
        order, world = await read_order(request, orders.Found), self._telegram.world
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
        order, world = await read_order(request, orders.Kick), self._telegram.world
        bot = self.bot(order.bot)
        chat = world.chat(bot, order.chat)
        if chat is None:
            raise BadInputError(f"chat {order.chat} does not exist: POST /sim/chat")
        world.kick(bot, chat, self._telegram.clock.now(), kicked=order.kicked)
        return {}

    @contextmanager
    def _person(self, order: orders.Move) -> Iterator[Person]:
        person = Person(self._telegram, self.bot(order.bot), order.user, chat=order.chat)
        try:
            yield person
        finally:
            person.leaves()
