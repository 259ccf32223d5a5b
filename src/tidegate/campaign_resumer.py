"""Goes on with broadcasts whose process has ended, if that needs none of the application's functions."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Self

from tidegate.broadcast.campaign import Campaign
from tidegate.broadcast.recorder import storable
from tidegate.database.audience import SqlAudience, sql
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.lifecycle import GateCore
from tidegate.model import BotId
from tidegate.outbox.campaigns import GONE_AFTER, CampaignRecord, SqlSource
from tidegate.settings import Settings
from tidegate.store_loop import StoreLoop
from tidegate.stored_broadcasts import Broadcast, StoredBroadcasts
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.broadcast")

LOOK_EVERY: Final = 10.0  # seconds; longer than GONE_AFTER
TEND_EVERY: Final = 60.0  # seconds between two looks at the stored audiences
RETRY_AFTER: Final = 60.0  # seconds until a broadcast is tried again that could not be resumed
LEASE: Final = "broadcasts that were left"
LEASE_SECONDS: Final = 60.0  # in which a process resumes what it has found, or another tries

CampaignKey = tuple[BotId, str]


def sql_source(
    audience: object, letter: object, shared: Mapping[str, Any], settings: Settings
) -> SqlSource | None:
    """Return what has to be stored so that the broadcast can be resumed; None if that is not possible."""
    if not isinstance(audience, SqlAudience) or not isinstance(letter, str | Mapping):
        return None
    database = audience.stored_address(_database_url(settings))
    kept = storable({"letter": letter, "parameters": audience.parameters, "fields": dict(shared)})
    if database is None or kept is None:
        return None
    return SqlSource(
        database=database, query=audience.query, parameters=kept["parameters"], letter=kept["letter"]
    )


class CampaignResumer:
    """`broadcast` is that of the gate, which is open."""

    def __init__(self, broadcast: Broadcast, core: GateCore) -> None:
        self._broadcast = broadcast
        self._core = core
        self.stored = StoredBroadcasts(broadcast, core)

    async def resume_all(self) -> list[Campaign]:
        """Resume those that ran when their process ended. One that fails is logged; the others go on."""
        started = []
        for record in await self._abandoned():
            if not record.is_resumable:
                how = "make the same call again" if record.file is None else "run tidegate broadcast resume"
                log.info("broadcast %s was stopped: %s to resume it", record.name, how)
                continue
            try:
                started.append(await self.resume(record))
            except TidegateError as error:
                log.warning("broadcast %s was not resumed: %s", record.name, error)
        return started

    async def unended(self) -> list[CampaignRecord]:
        """Return those that have not ended and that this process does not run."""
        return [
            one
            for one in await self._core.store.campaigns.all()
            if one.state in {"running", "paused", "stopped"}
            and not self._core.campaigns.is_running(one.bot, one.name)
        ]

    async def resume(self, record: CampaignRecord) -> Campaign:
        """Go on with a broadcast in this process. Raises TidegateError if that is not possible here."""
        if record.stored is not None:
            campaign = await self.stored.resume(record.stored)
        elif record.source is not None:
            campaign = await self._resume_query(record, record.source)
        else:
            raise BadInputError("only its application can resume it")
        log.info("broadcast %s is resumed", record.name)
        return campaign

    async def _abandoned(self) -> list[CampaignRecord]:
        """Return those that have not ended and that no process runs.

        One that was reported a moment ago may be another process's: it is if a further report comes.
        """
        clock = self._core.clock
        before = {(one.bot, one.name): one for one in await self.unended()}
        if any(one.at(clock.now()).state != "stopped" for one in before.values()):
            await clock.sleep(GONE_AFTER)
        return [
            one
            for one in await self.unended()
            if (known := before.get((one.bot, one.name))) is not None and known.changed_at == one.changed_at
        ]

    async def _resume_query(self, record: CampaignRecord, source: SqlSource) -> Campaign:
        address = source.database or _database_url(self._core.settings)
        if not address:
            raise BadInputError("its audience is in the database of DATABASE_URL, which is not set")
        return await self._broadcast(
            record.name,
            sql(address, source.query, **source.parameters),
            source.letter,
            bot=record.bot,
            ahead=record.ahead,
            remember=record.remember,
            total=record.total,
            **record.fields,
        )


class CampaignKeeper:
    """`async with` it in a process that delivers: broadcasts that their process left go on here.

    Of all processes that do so, one resumes at a time. Only broadcasts that need no application are resumed.
    Stored audiences of broadcasts that have ended are deleted.
    """

    def __init__(self, resumer: CampaignResumer, core: GateCore) -> None:
        self._resumer = resumer
        self._core = core
        self._clock = core.clock
        self._leases = core.store.leases()
        self._steps = StoreLoop("broadcasts that were left", self.look, core.clock, log)
        self._tasks = BackgroundTasks()
        self._seen: dict[CampaignKey, float] = {}  # when each was reported last, at the look before
        self._refused: dict[CampaignKey, tuple[float, str]] = {}  # when to try again, and why not
        self._tend_at = 0.0  # monotonic
        self._untended = ""  # why the stored audiences were not looked after last

    async def __aenter__(self) -> Self:
        self._tasks.supervise(self._steps.run, "what resumes broadcasts", self._clock)
        self._core.problem_sources.append(self.problems)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._core.problem_sources.remove(self.problems)
        await self._tasks.stop()

    def problems(self) -> list[str]:
        """Why broadcasts are not resumed as they should be, a line each."""
        return [*self._steps.problems(), *self._tasks.problems()]

    async def look(self) -> float:
        """Resume what was left since the look before, and tend the stored audiences now and then.

        Returns the seconds until the next look.
        """
        found = await self._resumable()
        left = {key: record for key, record in found.items() if self._was_left(key, record)}
        is_time_to_tend = self._clock.monotonic() >= self._tend_at
        if (left or is_time_to_tend) and await self._leases.lease(LEASE, LEASE_SECONDS):
            try:
                await self._resume(left)
                if is_time_to_tend:
                    await self._tend()
            finally:
                await self._leases.give_back(LEASE)
        self._seen = {key: record.changed_at for key, record in found.items()}
        self._refused = {key: why for key, why in self._refused.items() if key in found}
        return LOOK_EVERY

    async def _resumable(self) -> dict[CampaignKey, CampaignRecord]:
        return {(one.bot, one.name): one for one in await self._resumer.unended() if one.is_resumable}

    def _was_left(self, key: CampaignKey, record: CampaignRecord) -> bool:
        """Return whether no process runs it. Not by the time of its report: clocks of machines differ."""
        is_silent = record.state == "stopped" or self._seen.get(key) == record.changed_at
        again_at, _ = self._refused.get(key, (0.0, ""))
        return is_silent and self._clock.monotonic() >= again_at

    async def _resume(self, left: dict[CampaignKey, CampaignRecord]) -> None:
        """Resume them, each whatever became of the others. Raises StoreError if a database was away."""
        away: StoreError | None = None
        for key, record in (await self._resumable() if left else {}).items():
            if left.get(key) != record:  # another process was quicker
                continue
            try:
                await self._resumer.resume(record)
            except StoreError as error:
                away = error
            except TidegateError as error:
                if str(error) != self._refused.get(key, (0.0, ""))[1]:
                    log.warning("broadcast %s was not resumed: %s", record.name, error)
                self._refused[key] = (self._clock.monotonic() + RETRY_AFTER, str(error))
        if away is not None:
            raise away

    async def _tend(self) -> None:
        """A database that is away now, or cannot be used, is no trouble of broadcasts that do not need it."""
        self._tend_at = self._clock.monotonic() + TEND_EVERY
        try:
            await self._resumer.stored.tend()
        except TidegateError as error:
            if str(error) != self._untended:
                log.warning("stored audiences are looked after when this is mended: %s", error)
            self._untended = str(error)
        else:
            self._untended = ""


def _database_url(settings: Settings) -> str | None:
    return None if settings.database_url is None else settings.database_url.get_secret_value()
