"""Routes of bots and their limits: register, rotate the token, remove, pause, see and change limits."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.parameters import BotField, BotPath, ChatField, ChatPath, JsonBody, chat_of
from tidegate.ops.api.problems import BAD_INPUT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.api.status import BotNumbers
from tidegate.ops.reports import bot_report, known_bots
from tidegate.outbox.port import OutboxStats
from tidegate.scrubber import scrub_secrets

ROUTES = RouteTable("bots")
TOKEN_EXAMPLE: Final = "42:your-token"  # noqa: S105  (it is none)
ADMIN_OF_IT = RouteAccess(Role.ADMIN, Scope.PATH)
OPERATOR_OF_IT = RouteAccess(Role.OPERATOR, Scope.PATH)


class BotToken(JsonBody):
    """The token of a bot. It is stored encrypted, and shown nowhere."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"token": TOKEN_EXAMPLE}})

    token: SecretStr = Field(max_length=200, description="From @BotFather.")
    api_url: str | None = Field(
        default=None,
        max_length=500,
        description="Of your own Bot API server. Null: as before; at first it is Telegram's.",
    )


class BotView(BotNumbers):
    """A bot, without its token. `registered`: its token is stored, for every process."""

    api_url: str | None = Field(description="Without the password of an address that has one.")
    registered: bool
    paused: bool
    paused_chats: int


class BotList(BaseModel):
    items: list[BotView]


class BotRegistered(BaseModel):
    bot: BotField
    api_url: str
    fresh: bool = Field(description="False: it was registered before, and has a new token now.")


class BotRemoved(BaseModel):
    bot: BotField
    removed: bool


class PauseView(BaseModel):
    bot: BotField
    chat_id: ChatField | None
    paused: bool


async def _views(call: ApiCall) -> list[BotView]:
    """Return the bots that the principal may see: registered ones, and those that have messages."""
    by_bot, pauses = await call.gate.outbox.stats_by_bot(), await call.gate.core.store.pauses()
    infos = {info.id: info for info in call.gate.bots()}
    bots = {*infos, *by_bot, *(bot for bot, _ in pauses)}
    now = call.clock.now()
    return [
        BotView(
            **bot_report(bot, by_bot.get(bot, OutboxStats()), now),
            api_url=scrub_secrets(infos[bot].api_url) if bot in infos else None,
            registered=bot in infos and infos[bot].stored,
            paused=(bot, None) in pauses,
            paused_chats=sum(one == bot and chat is not None for one, chat in pauses),
        )
        for bot in sorted(bots)
        if call.principal.bot in {None, bot}
    ]


async def find_bot(call: ApiCall, bot: int) -> BotId:
    """Return a bot that is known here or to a process that sends. Raises ProblemError."""
    if bot not in await known_bots(call.gate):
        try:
            return await call.bot_for(bot)
        except BadInputError:
            raise call.not_found(f"bot {bot}") from None
    return BotId(bot)


@ROUTES.get("/api/v1/bots", RouteAccess(Role.VIEWER, Scope.FILTER), summary="List bots")
async def list_bots(call: Call) -> BotList:
    """The bots, with how many of their messages are in which state. Tokens are never shown."""
    return BotList(items=await _views(call))


@ROUTES.get("/api/v1/bots/{bot}", RouteAccess(Role.VIEWER, Scope.PATH), summary="Show a bot")
async def show_bot(call: Call, bot: BotPath) -> BotView:
    found = [one for one in await _views(call) if one.bot == bot]
    if not found:
        raise call.not_found(f"bot {bot}")
    return found[0]


@ROUTES.change(
    "POST",
    "/api/v1/bots",
    RouteAccess(Role.ADMIN, Scope.ALL),
    "bots.register",
    status_code=201,
    summary="Register a bot",
)
async def register_bot(call: Call, new: BotToken) -> BotRegistered:
    """Store the token of a bot, encrypted, for every process that opens the store.

    Telegram is not asked whether the token is right: the first message tells.
    """
    return await _register(call, new)


@ROUTES.change(
    "PUT", "/api/v1/bots/{bot}/token", ADMIN_OF_IT, "bots.rotate_token", summary="Rotate a bot's token"
)
async def rotate_token(call: Call, bot: BotPath, new: BotToken) -> BotRegistered:
    """Give a bot a new token. Processes that send use it at once."""
    if not new.token.get_secret_value().startswith(f"{bot}:"):
        raise ProblemError(BAD_INPUT, f"the token is not one of bot {bot}: it begins with {bot}:")
    await find_bot(call, bot)
    return await _register(call, new)


async def _register(call: ApiCall, new: BotToken) -> BotRegistered:
    if new.api_url is not None and "@" in new.api_url:
        raise ProblemError(BAD_INPUT, "api_url: the address must not contain a user or a password")
    before = {info.id for info in call.gate.bots() if info.stored}
    made = await call.gate.register_bot(new.token.get_secret_value(), api_url=new.api_url)
    [api_url] = [info.api_url for info in call.gate.bots() if info.id == made.id]
    call.changed(bot=made.id, target=made.id)
    return BotRegistered(bot=made.id, api_url=scrub_secrets(api_url), fresh=made.id not in before)


@ROUTES.change("DELETE", "/api/v1/bots/{bot}", ADMIN_OF_IT, "bots.remove", summary="Remove a bot")
async def remove_bot(call: Call, bot: BotPath) -> BotRemoved:
    """Forget a bot's token. Its messages that wait stay, and die without it when their turn comes."""
    if not await call.gate.remove_bot(bot):
        raise call.not_found(f"bot {bot}")
    call.changed(bot=BotId(bot), target=bot)
    return BotRemoved(bot=bot, removed=True)


@ROUTES.change("POST", "/api/v1/bots/{bot}/pause", OPERATOR_OF_IT, "bots.pause", summary="Pause a bot")
async def pause_bot(call: Call, bot: BotPath) -> PauseView:
    """Send nothing that is queued for a bot. A restart does not end it; messages are still accepted."""
    return await _set_paused(call, bot, None, paused=True)


@ROUTES.change("POST", "/api/v1/bots/{bot}/resume", OPERATOR_OF_IT, "bots.resume", summary="Resume a bot")
async def resume_bot(call: Call, bot: BotPath) -> PauseView:
    """End the pause of a bot. Chats that are paused for themselves stay so."""
    return await _set_paused(call, bot, None, paused=False)


@ROUTES.change(
    "POST", "/api/v1/bots/{bot}/chats/{chat_id}/pause", OPERATOR_OF_IT, "chats.pause", summary="Pause a chat"
)
async def pause_chat(call: Call, bot: BotPath, chat_id: ChatPath) -> PauseView:
    """Send nothing that is queued for one chat."""
    return await _set_paused(call, bot, chat_of(chat_id), paused=True)


@ROUTES.change(
    "POST",
    "/api/v1/bots/{bot}/chats/{chat_id}/resume",
    OPERATOR_OF_IT,
    "chats.resume",
    summary="Resume a chat",
)
async def resume_chat(call: Call, bot: BotPath, chat_id: ChatPath) -> PauseView:
    """End the pause of one chat."""
    return await _set_paused(call, bot, chat_of(chat_id), paused=False)


async def _set_paused(call: ApiCall, bot: int, chat_id: ChatId | None, *, paused: bool) -> PauseView:
    found, outbox = await find_bot(call, bot), call.gate.outbox
    await (outbox.pause if paused else outbox.resume)(found, chat_id)
    call.changed(bot=found, target=chat_id)
    return PauseView(bot=found, chat_id=chat_id, paused=paused)
