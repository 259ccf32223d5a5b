"""Writes the progress of a running broadcast to the store, and does what operators ask of it there."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.broadcast.audience import Audience, size_of
from tidegate.broadcast.progress import Progress
from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import BotId
from tidegate.outbox.campaigns import (
    CAMPAIGNS_KEPT,
    REPORT_SECONDS,
    CampaignRecord,
    CampaignStore,
    CampaignWish,
    FileSource,
    SqlSource,
    StoredSource,
)

if TYPE_CHECKING:  # it imports this module
    from tidegate.broadcast.campaign import Campaign

log = logging.getLogger("tidegate.broadcast")

STORE_SECONDS: Final = 5.0  # for a store to answer: a broadcast does not wait longer for its record
COUNTED: Final = (
    *("read", "accepted", "earlier", "delivered", "dead", "parked", "expired", "cancelled", "forgotten"),
    *("waiting", "skipped", "bad", "repeated", "unmarked", "refused"),
)


class CampaignFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a broadcast that are known before it begins."""

    bot: BotId
    audience: str
    fields: dict[str, Any] = {}
    remember: float = 0.0
    ahead: int | None = None
    source: SqlSource | None = None
    file: FileSource | None = None
    stored: StoredSource | None = None


class CampaignRecorder:
    """The record of one broadcast. A store that cannot be used now is tried again with the next report."""

    def __init__(self, store: CampaignStore, clock: Clock, facts: CampaignFacts) -> None:
        self._store = store
        self._clock = clock
        self._facts = facts
        self._wish: CampaignWish = "run"  # as the store knows it
        self._earlier: CampaignRecord | None = None  # of a call of this name that was not brought to its end

    async def begin(self, campaign: "Campaign") -> None:
        """Write the first record. One that an operator paused, and that has not ended, begins paused."""
        with suppress(StoreError, TimeoutError):
            async with self._clock.timeout(STORE_SECONDS):
                known = await self._store.find(self._facts.bot, campaign.name)
                if known is not None and known[0].state in {"running", "paused", "stopped"}:
                    self._earlier = known[0]
                    if known[1] == "pause":
                        log.info("broadcast %s begins paused: an operator has paused it", campaign.name)
                        await campaign.pause()
                await self._store.save(self._record(campaign), campaign.wish)
                self._wish = campaign.wish
                await self._forget_oldest()

    async def follow(self, campaign: "Campaign") -> None:
        """Report until the broadcast has ended, and its end too."""
        while not campaign.has_ended:
            campaign.steered.clear()
            await self._report(campaign)
            with suppress(TimeoutError):
                async with self._clock.timeout(REPORT_SECONDS):
                    await campaign.steered.wait()
        await self._report(campaign)

    async def forget(self, campaign: "Campaign") -> None:
        """Take the record back of a broadcast that sent nothing, since it was called wrongly.

        That of an earlier call stays: it can be resumed when what stands in its way is mended.
        """
        with suppress(StoreError, TimeoutError):
            async with self._clock.timeout(STORE_SECONDS):
                if self._earlier is not None:
                    await self._store.save(msgspec.structs.replace(self._earlier, state="stopped"))
                else:
                    await self._store.remove(self._facts.bot, campaign.name)

    async def _report(self, campaign: "Campaign") -> None:
        steered_here = campaign.wish if campaign.wish != self._wish else None
        try:
            async with self._clock.timeout(STORE_SECONDS):
                asked = await self._store.save(self._record(campaign), steered_here)
        except (StoreError, TimeoutError):
            return
        if steered_here is None and asked != self._wish:
            log.info("broadcast %s: an operator asks it to %s", campaign.name, asked)
            await _steer(campaign, asked)
        self._wish = asked

    def _record(self, campaign: "Campaign") -> CampaignRecord:
        progress, facts = campaign.progress, self._facts
        delivering = progress.state == "finished" and progress.waiting > 0
        return CampaignRecord(
            bot=facts.bot,
            name=campaign.name,
            state="delivering" if delivering else progress.state,
            audience=facts.audience,
            started_at=progress.started_at,
            changed_at=self._clock.now(),
            ended_at=None if delivering else progress.ended_at,
            total=progress.total,
            counts=counts_of(progress),
            trouble=progress.trouble,
            fields=facts.fields,
            remember=facts.remember,
            ahead=facts.ahead,
            source=facts.source,
            file=facts.file,
            stored=facts.stored,
        )

    async def _forget_oldest(self) -> None:
        records = await self._store.all()
        ended = [one for one in records if one.has_ended]
        for record in ended[: max(0, len(records) - CAMPAIGNS_KEPT)]:
            await self._store.remove(record.bot, record.name)


async def _steer(campaign: "Campaign", wish: CampaignWish) -> None:
    match wish:
        case "pause":
            await campaign.pause()
        case "run":
            await campaign.resume()
        case "cancel":
            await campaign.cancel()


def counts_of(progress: Progress) -> dict[str, int]:
    return {name: count for name in COUNTED if (count := getattr(progress, name))}


def describe_audience(audience: Audience) -> str:
    """Return the audience in words, without any of its rows."""
    if (text := getattr(audience, "description", None)) is not None:
        return str(text)
    size = size_of(audience)
    kind = type(audience).__name__
    return kind if size is None else f"{kind} of {size:,}"


def storable(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields as they are read from a store; None if they would change on the way."""
    try:
        stored: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(dict(fields)))
    except (TypeError, ValueError, OverflowError):
        return None
    return stored if stored == dict(fields) else None
