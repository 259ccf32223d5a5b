"""Where messages move to: a store in Redis, without a spool. What it has not taken must stay where it is."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from tidegate.clock import Clock
from tidegate.extras import extra
from tidegate.keys import Keys
from tidegate.model import Delivered
from tidegate.outbox.base import Outbox
from tidegate.outbox.sqlite.settling import Call
from tidegate.pacing.rules import Family, Rules
from tidegate.roster import Shelf
from tidegate.settings import Settings

if TYPE_CHECKING:
    from tidegate.outbox.redis.link import Link


class Target(NamedTuple):
    outbox: Outbox
    link: "Link"
    shelf: Shelf
    risks: list[str]  # what could be lost there, in words


@asynccontextmanager
async def opened(url: str, settings: Settings, clock: Clock, *, touch: bool = True) -> AsyncIterator[Target]:
    """Unless `touch`, nothing is written there."""
    with extra("redis", "redis"):
        from tidegate.outbox.redis.bots import RedisBotShelf  # noqa: PLC0415
        from tidegate.outbox.redis.durability import look  # noqa: PLC0415
        from tidegate.outbox.redis.link import RedisLink  # noqa: PLC0415
        from tidegate.outbox.redis.store import RedisOutbox  # noqa: PLC0415
    link = await asyncio.to_thread(RedisLink, url, clock, secrets.token_hex(6))  # which reads files
    outbox = RedisOutbox(link, clock, settings.rules())
    try:
        risks = await look(link)
        if touch:
            await outbox.open()
        yield Target(outbox, link, RedisBotShelf(link, Keys.of(settings.tidegate_key, None)), risks)
    finally:
        await outbox.close()


async def remember_calls(target: Outbox, calls: Iterable[Call], rules: Rules, now: float) -> None:
    """Slots that still cool go along: as if the calls had been made there, and answered so long ago."""
    for call in calls:
        age = max(0.0, now - call.at)
        if call.cost and age < _longest(call, rules):
            family: Family = call.kind  # type: ignore[assignment]  # of one that has such a lane
            try:
                turn = await target.turn(call.bot, call.chat, family, call.cost, paid=call.paid, max_wait=0)
            except TimeoutError:
                continue  # there is no slot to take: others use that limit
            await target.end_turn(turn, Delivered(None), age)


def _longest(call: Call, rules: Rules) -> float:
    rates = rules.actions if call.kind == "action" else (rules.bot, rules.chat(call.chat))
    return max(rate.seconds * max(1.0, call.cost / rate.count) for rate in rates)
