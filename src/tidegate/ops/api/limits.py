"""Routes of limits: see the nominal, learned and closed ones, change those of a bot, end closures."""

from typing import Annotated, Final

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field

from tidegate.model import BotId, BotLimits, ChatId, Rate
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall, Call
from tidegate.ops.api.bots import OPERATOR_OF_IT, find_bot
from tidegate.ops.api.pagination import Cursor, ItemPage, Limit, decode_cursor, encode_cursor
from tidegate.ops.api.parameters import BotField, BotFilter, BotPath, ChatField, JsonBody, Seconds
from tidegate.ops.api.problems import BAD_INPUT, ProblemError
from tidegate.ops.api.routes import RouteAccess, RouteTable, Scope
from tidegate.ops.reports import LIMIT_NAMES, known_bots
from tidegate.outbox.admission import check_chat
from tidegate.outbox.port import LimitState
from tidegate.pacing.rules import check_limits, own_rules

ROUTES = RouteTable("limits")
LONGEST_RATE: Final = 30  # characters

RateField = Annotated[
    str, Field(max_length=LONGEST_RATE, description="Calls/seconds, such as 25/1.", examples=["25/1"])
]


class NewLimits(JsonBody):
    """The limits of a bot. What is not given is as in the settings."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"bot_rate": "25/1", "group_rate": "15/60"}}
    )

    bot_rate: RateField | None = Field(default=None, description="Of all its calls together.")
    chat_rate: RateField | None = Field(default=None, description="Of each private chat.")
    group_rate: RateField | None = Field(default=None, description="Of each group and channel.")


class OpenedPlace(JsonBody):
    """The chat to open; without one, the bot and all its chats."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"chat_id": 1001}})

    chat_id: ChatField | None = None


class BotLimitsView(BaseModel):
    """The limits of a bot. `own`: those that were set for it; the others are those of the settings."""

    bot: BotField
    bot_rate: RateField
    chat_rate: RateField
    reply_burst: int = Field(description="Replies to one private chat that may leave at once.")
    group_rate: RateField
    paid_rate: RateField
    own: list[str] = Field(examples=[["bot_rate"]])
    learned: RateField | None = Field(description="The limit of the bot that 429s have taught.")
    closed_until: Seconds | None = Field(description="By a 429.")
    obstacle: str | None = Field(description="Why it cannot send, in an outage.")


class ChatLimitView(BaseModel):
    """A chat that is closed, or whose limit was learned."""

    bot: BotField
    chat_id: ChatField
    learned: RateField | None
    closed_until: Seconds | None


class LimitsPage(ItemPage[ChatLimitView]):
    """Limits of bots, on every page, and some of the chats that are closed or learned."""

    bots: list[BotLimitsView]


class LimitsOpened(BaseModel):
    bot: BotField
    chat_id: ChatField | None
    opened: bool


def _bot_view(call: ApiCall, bot: BotId, own: BotLimits, state: LimitState) -> BotLimitsView:
    rules = own_rules(call.gate.core.rules, own)
    return BotLimitsView(
        bot=bot,
        bot_rate=str(rules.bot),
        chat_rate=str(rules.private),
        reply_burst=rules.burst,
        group_rate=str(rules.group),
        paid_rate=str(rules.paid),
        own=[LIMIT_NAMES[name] for name in own.set_ones],
        learned=None if state.allowed is None else str(state.allowed),
        closed_until=_closed_until(call, state),
        obstacle=state.obstacle or None,
    )


def _closed_until(call: ApiCall, state: LimitState) -> float | None:
    return round(call.clock.now() + state.closed_for, 1) if state.closed_for > 0 else None


async def _view(call: ApiCall, bot: BotId) -> BotLimitsView:
    outbox = call.gate.outbox
    states = {state.bot: state for state in await outbox.limits(chats=False)}
    own = (await outbox.own_limits()).get(bot, BotLimits())
    return _bot_view(call, bot, own, states.get(bot, LimitState(bot)))


@ROUTES.get("/api/v1/limits", RouteAccess(Role.VIEWER, Scope.FILTER), summary="Show limits")
async def show_limits(
    call: Call, bot: BotFilter = None, cursor: Cursor = None, limit: Limit = 50
) -> LimitsPage:
    """The limits of bots: nominal, learned, closed; and the chats that are closed or learned, by id.

    Which limits 429s have taught is known to the process that sends, and in Redis to all.
    """
    only, outbox = call.bot_filter(bot), call.gate.outbox
    after = decode_cursor("limits", cursor, str)
    states, own = await outbox.limits(), await outbox.own_limits()
    of_bots = {state.bot: state for state in states if state.chat_id is None}
    bots = sorted({*await known_bots(call.gate), *own, *of_bots})
    chats = sorted(
        ((_place(state.bot, state.chat_id), state) for state in states if state.chat_id is not None),
        key=lambda one: one[0],
    )
    rest = [one for one in chats if only in {None, one[1].bot} and (after is None or one[0] > after)]
    page, more = rest[:limit], len(rest) > limit
    return LimitsPage(
        bots=[
            _bot_view(call, one, own.get(one, BotLimits()), of_bots.get(one, LimitState(one)))
            for one in bots
            if only in {None, one}
        ],
        items=[_chat_view(call, state) for _, state in page],
        next_cursor=encode_cursor("limits", page[-1][0] if more else None),
    )


def _place(bot: BotId, chat: ChatId) -> str:
    return f"{bot}/{chat}"


def _chat_view(call: ApiCall, state: LimitState) -> ChatLimitView:
    assert state.chat_id is not None  # noqa: S101  (the caller has looked)
    return ChatLimitView(
        bot=state.bot,
        chat_id=state.chat_id,
        learned=None if state.allowed is None else str(state.allowed),
        closed_until=_closed_until(call, state),
    )


@ROUTES.change(
    "PUT", "/api/v1/bots/{bot}/limits", OPERATOR_OF_IT, "limits.set", summary="Set the limits of a bot"
)
async def set_limits(call: Call, bot: BotPath, new: NewLimits) -> BotLimitsView:
    """Give a bot limits of its own, instead of those that it had. They hold at once, and after a restart.

    What was sent lately counts. A window that gets longer begins full: the bot pauses until no call of
    before counts in it.
    """
    rates = {"bot": new.bot_rate, "private": new.chat_rate, "group": new.group_rate}
    given = {name: Rate.parse(rate) for name, rate in rates.items() if rate is not None}
    if not given:
        text = "no limit is given: send bot_rate, chat_rate or group_rate; DELETE ends all of them"
        raise ProblemError(BAD_INPUT, text)
    return await _set(call, await find_bot(call, bot), check_limits(BotLimits(**given)))


@ROUTES.change(
    "DELETE",
    "/api/v1/bots/{bot}/limits",
    OPERATOR_OF_IT,
    "limits.reset",
    summary="Reset the limits of a bot",
)
async def reset_limits(call: Call, bot: BotPath) -> BotLimitsView:
    """End the limits of a bot's own: those of the settings hold again."""
    return await _set(call, await find_bot(call, bot), BotLimits())


async def _set(call: ApiCall, bot: BotId, limits: BotLimits) -> BotLimitsView:
    await call.gate.outbox.set_limits(bot, limits)
    given = ", ".join(f"{LIMIT_NAMES[name]} {rate}" for name, rate in limits.set_ones.items())
    call.changed(bot=bot, target=bot, detail=given or None)
    return await _view(call, bot)


@ROUTES.change(
    "POST",
    "/api/v1/bots/{bot}/limits/open",
    OPERATOR_OF_IT,
    "limits.open",
    summary="End closures",
)
async def open_limits(
    call: Call, bot: BotPath, place: Annotated[OpenedPlace, Body(default_factory=OpenedPlace)]
) -> LimitsOpened:
    """End what a 429 has closed: a bot with its chats, or one chat; the wait of an outage, too.

    Learned limits stay. If Telegram still refuses, the next 429 closes again.
    """
    found = await find_bot(call, bot)
    chat = None if place.chat_id is None else check_chat(place.chat_id)
    await call.gate.outbox.open_limits(found, chat)
    call.changed(bot=found, target=chat)
    return LimitsOpened(bot=found, chat_id=chat, opened=True)
