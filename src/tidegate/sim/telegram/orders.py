"""Orders to the control API: what they may hold, and how they are read."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.telegram.incoming import UNREADABLE

Order = TypeVar("Order")

# As Telegram numbers them: 52 bits, people above zero and everything else below.
BotId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
UserId = Annotated[int, msgspec.Meta(gt=0, lt=2**52)]
GroupId = Annotated[int, msgspec.Meta(lt=0, gt=-(2**52))]
PublicName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_]{3,31}$")]


class Move(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody does something, in the private chat with the bot or in a group."""

    bot: BotId
    user: UserId
    chat: GroupId | None = None


class Say(Move, forbid_unknown_fields=True, kw_only=True):
    text: str


class Send(Move, forbid_unknown_fields=True, kw_only=True):
    content: dict[str, Any] = {}
    photo: bytes | None = None  # in base64
    document: bytes | None = None


class Press(Move, forbid_unknown_fields=True):
    data: str | None = None


class Vote(Move, forbid_unknown_fields=True, kw_only=True):
    options: list[int]


class Pay(Move, forbid_unknown_fields=True):
    link: str | None = None


class Query(Move, forbid_unknown_fields=True, kw_only=True):
    text: str
    timeout: float = 10


class Join(msgspec.Struct, forbid_unknown_fields=True):
    bot: BotId
    user: UserId
    chat: GroupId
    joined: bool = True


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


async def read_order(request: web.Request, kind: type[Order]) -> Order:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadInputError(str(error)) from error
    except UNREADABLE:
        raise BadInputError("the request cannot be read: send a JSON object") from None
