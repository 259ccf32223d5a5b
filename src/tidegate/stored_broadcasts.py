"""Broadcasts whose audience is stored: once accepted, they reach everybody, whichever process is killed.

The rows are in the SQL database, the progress and the messages in the store. A broadcast is accepted when its
rows are complete and the audience is `ready`, in one transaction. From then on any process begins or resumes
it. That several do so at the same time does no harm: dedup keys give each chat one message.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tidegate.broadcast.audience import Audience
from tidegate.broadcast.audience_file import AudienceFile
from tidegate.broadcast.campaign import Campaign, check_name
from tidegate.broadcast.recorder import storable
from tidegate.broadcast.stored_audience import AudienceRecord, AudienceTerms, LoadedAudience, letter_of
from tidegate.errors import BadInputError, ConflictError, StoreError, TidegateError
from tidegate.lifecycle import GateCore
from tidegate.model import BotId
from tidegate.outbox.campaigns import CampaignRecord, StoredSource
from tidegate.outbox.message_times import absolute_times

log = logging.getLogger("tidegate.broadcast")

Broadcast = Callable[..., Awaitable[Campaign]]

ENDED_LOOKS: Final = 10  # seconds, and looks, until the end of a broadcast is in its record
BEGIN_AFTER: Final = 10.0  # seconds: then the process that accepted a broadcast has ended, or is late
UPLOAD_GONE_AFTER: Final = 3_600.0  # seconds without a row: nobody uploads this audience any more
ORPHAN_KEPT: Final = 86_400.0  # seconds that an audience is kept whose broadcast the store does not know


class StoredBroadcasts:
    """`broadcast` is that of the gate, which is open."""

    def __init__(self, broadcast: Broadcast, core: GateCore) -> None:
        self._broadcast = broadcast
        self._core = core

    async def start(
        self,
        name: str,
        source: Audience | AudienceFile,
        letter: str | Mapping[str, Any] | None,
        bot: BotId,
        *,
        remember: float,
        ahead: int | None,
        fields: Mapping[str, Any],
    ) -> CampaignRecord:
        """Store an audience and begin its broadcast. If the same one has not ended, return that.

        Raises BadRowsError if a row cannot be sent, ConflictError if the name is taken by another broadcast:
        then nothing is sent, nor stored.
        """
        core = self._core
        words = source.name if isinstance(source, AudienceFile) else "a list"
        shared = absolute_times(fields, core.clock.now())
        kept = _plain({"letter": letter, "fields": dict(shared)})
        terms = AudienceTerms(
            bot=bot, name=check_name(name), audience=words, remember=remember, ahead=ahead, **kept
        )
        await self._check_free(terms)
        loaded = await core.audiences.add(terms, source, fields)
        holder = await self._take_name(loaded)
        if holder.id == loaded.id:
            await self._begin_first(holder)
        elif holder.digest != loaded.digest:
            raise ConflictError(
                f"broadcast {name!r} has not ended, and has other rows or another letter: wait for its end,"
                " cancel it, or give another name"
            )
        return await self._record_of(holder)

    async def resume(self, source: StoredSource) -> Campaign:
        """Go on with a broadcast in this process. Raises BadInputError if its rows are not here."""
        audience = await (await self._core.audiences.opened()).find(source.audience)
        if audience is None:
            raise BadInputError(
                f"its rows are not in {self._core.database.name}: resume it where DATABASE_URL, or the file"
                " beside the store, has them, or cancel it"
            )
        return await self._begin(audience)

    async def tend(self) -> None:
        """Begin what was accepted and not begun, and delete the audiences of broadcasts that have ended.

        Creates no database.
        """
        audiences = self._core.audiences
        if not await audiences.exist():
            return
        for audience in await (await audiences.opened()).all():
            known = await self._campaign_of(audience)
            if self._is_over(audience, known):
                await audiences.remove(audience.id)
            elif self._was_left(audience, known):
                try:
                    await self._begin(audience)
                except StoreError:
                    raise
                except TidegateError as error:
                    log.warning("broadcast %s was accepted and cannot begin: %s", audience.terms.name, error)

    async def _check_free(self, terms: AudienceTerms) -> None:
        """Raise ConflictError if a broadcast that is not of a stored audience has the name now."""
        found = await self._core.store.campaigns.find(terms.bot, terms.name)
        record = None if found is None else found[0].at(self._core.clock.now())
        if record is not None and record.stored is None and not record.has_ended:
            raise ConflictError(
                f"broadcast {terms.name!r} is {record.state}, and was not begun with these rows: wait for its"
                " end, cancel it, or give another name"
            )

    async def _take_name(self, loaded: LoadedAudience) -> AudienceRecord:
        """Make an audience ready; return it or, removing this one, that which has the name."""
        audiences = self._core.audiences
        try:
            store = await audiences.opened()
            while (holder := await store.complete(*loaded)).id != loaded.id and await self._is_done(holder):
                await audiences.remove(holder.id)
        except BaseException:
            await self._remove_quietly(loaded.id)
            raise
        if holder.id != loaded.id:
            await audiences.remove(loaded.id)
        return holder

    async def _is_done(self, audience: AudienceRecord) -> bool:
        """Return whether its broadcast has ended, or has begun and is forgotten by the store."""
        known = await self._campaign_of(audience)
        return audience.state == "begun" if known is None else known.has_ended

    async def _record_of(self, audience: AudienceRecord) -> CampaignRecord:
        """Return the broadcast of an audience. One that was stopped goes on here."""
        known, terms = await self._campaign_of(audience), audience.terms
        if known is not None and known.at(self._core.clock.now()).state == "stopped":
            await self._begin(audience)
        if known is not None:
            return await self._core.campaign_control.find(terms.name, terms.bot)
        return CampaignRecord(  # another process begins it right now
            bot=terms.bot,
            name=terms.name,
            state="running",
            audience=terms.audience,
            started_at=audience.changed_at,
            changed_at=audience.changed_at,
            total=audience.rows,
            stored=StoredSource(audience=audience.id),
        )

    async def _campaign_of(self, audience: AudienceRecord) -> CampaignRecord | None:
        """Return the record of the broadcast of this very audience, if the store has it."""
        found = await self._core.store.campaigns.find(audience.terms.bot, audience.terms.name)
        if found is None or found[0].stored is None or found[0].stored.audience != audience.id:
            return None
        return found[0]

    async def _begin_first(self, audience: AudienceRecord) -> None:
        """Begin a broadcast for whoever waits to hear that it was accepted. What failed is not stored."""
        try:
            await self._begin(audience)
        except BaseException:
            if await self._campaign_of(audience) is None:
                await self._remove_quietly(audience.id)
            raise

    async def _begin(self, audience: AudienceRecord) -> Campaign:
        core, terms = self._core, audience.terms
        campaign = await self._broadcast(
            terms.name,
            core.audiences.read(audience),
            letter_of(terms),
            bot=terms.bot,
            ahead=terms.ahead,
            remember=terms.remember,
            **terms.fields,
        )
        core.audiences.tasks.start(self._remove_after(campaign, audience), f"rows of {terms.name}")
        with suppress(StoreError):  # its record tells as well that it has begun
            await (await core.audiences.opened()).begin(audience.id)
        return campaign

    async def _remove_after(self, campaign: Campaign, audience: AudienceRecord) -> None:
        """Remove the rows once the end of the broadcast is in the store: until then they may be needed."""
        if (await campaign.ended()).state == "stopped":
            return
        with suppress(StoreError):  # then `tend` does it
            for _ in range(ENDED_LOOKS):
                known = await self._campaign_of(audience)
                if known is not None and known.has_ended:
                    await self._core.audiences.remove(audience.id)
                    return
                await self._core.clock.sleep(1.0)

    async def _remove_quietly(self, audience: int) -> None:
        with suppress(StoreError):  # then `tend` does it, after some time
            await self._core.audiences.remove(audience)

    def _is_over(self, audience: AudienceRecord, known: CampaignRecord | None) -> bool:
        """Return whether nobody needs it any more."""
        age = self._core.clock.now() - audience.changed_at
        match audience.state:
            case "ended":
                return True
            case "loading":
                return age > UPLOAD_GONE_AFTER
            case "ready" | "begun" if known is not None:
                return known.has_ended
            case "begun":  # the store has forgotten it; that of another bot may belong to another store
                return age > ORPHAN_KEPT and self._is_ours(audience)
            case _:
                return False

    def _was_left(self, audience: AudienceRecord, known: CampaignRecord | None) -> bool:
        """Return whether it was accepted, and the process that did so has ended before it began."""
        age = self._core.clock.now() - audience.changed_at
        terms = audience.terms
        return (
            audience.state == "ready"
            and known is None
            and age > BEGIN_AFTER
            and self._is_ours(audience)
            and not self._core.campaigns.is_running(terms.bot, terms.name)
        )

    def _is_ours(self, audience: AudienceRecord) -> bool:
        try:
            self._core.registry.id_of(audience.terms.bot)
        except BadInputError:
            return False
        return True


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Return the letter and the fields as they are read from the database. Raises BadInputError."""
    letter = given["letter"]
    if not isinstance(letter, str | Mapping | None):
        raise BadInputError(
            f"a stored broadcast has a template or a mapping of fields, not {type(letter).__name__}:"
            " functions of a row are for gate.broadcast"
        )
    plain = storable(given | {"letter": dict(letter) if isinstance(letter, Mapping) else letter})
    if plain is None:
        raise BadInputError(
            "a stored broadcast has texts, numbers, lists and mappings only: give files by their file_id or"
            " address, or use gate.broadcast"
        )
    return plain
