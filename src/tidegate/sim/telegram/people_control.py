"""The actions of the control API for people and chats. Each is a request that carries itself out.

Bots are named by id: no token is needed.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from tidegate.errors import BadInputError
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.world import SUPERGROUP

# As Telegram numbers them: 52 bits, people above zero and everything else below.
BotId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
UserId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
GroupId = Annotated[int, msgspec.Meta(lt=0, gt=-(2**52))]
PublicName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{3,31}$")]

# The fields that Telegram adds to the content of a message.
_NO_CONTENT: Final = frozenset(("message_id", "date", "chat", "from"))


def known_bot(telegram: SimulatedTelegram, bot_id: int) -> SimulatedBot:
    bot = telegram.world.bots.get(bot_id)
    if bot is None:
        raise BadInputError(f"bot {bot_id} is not known: it has made no call yet")
    return bot


class ControlAction(msgspec.Struct):
    async def run(self, telegram: SimulatedTelegram) -> object:
        """Carry out the request; returns its JSON answer."""
        raise NotImplementedError


class PersonRequest(ControlAction, forbid_unknown_fields=True):
    """A person does something, in the private chat with the bot or in a group."""

    bot: BotId
    user: UserId
    chat: GroupId | None = None

    async def run(self, telegram: SimulatedTelegram) -> object:
        person = Person(telegram, known_bot(telegram, self.bot), self.user, chat=self.chat)
        try:
            return await self.act(person)
        finally:
            person.leaves()

    async def act(self, person: Person) -> object:
        raise NotImplementedError


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

    async def act(self, person: Person) -> object:
        return {"callback_query_id": person.presses(self.data)}


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
