"""Goes on with broadcasts whose process has ended, if that needs none of the application's functions."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidegate.broadcast.campaign import Campaign, RunningCampaigns
from tidegate.broadcast.recorder import storable
from tidegate.clock import Clock
from tidegate.database.audience import SqlAudience, sql
from tidegate.errors import BadInputError, TidegateError
from tidegate.outbox.campaigns import GONE_AFTER, CampaignRecord, CampaignStore, SqlSource
from tidegate.settings import Settings

log = logging.getLogger("tidegate.broadcast")

Broadcast = Callable[..., Awaitable[Campaign]]


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


async def resume_campaigns(
    broadcast: Broadcast,
    running: RunningCampaigns,
    store: CampaignStore,
    clock: Clock,
    settings: Settings,
) -> list[Campaign]:
    """Start those that ran when their process ended. One that fails to start is logged; the others go on."""
    started = []
    for record in await _abandoned(running, store, clock):
        if not isinstance(record.source, SqlSource):
            how = "make the same call again" if record.file is None else "run tidegate broadcast resume"
            log.info("broadcast %s was stopped: %s to resume it", record.name, how)
            continue
        try:
            started.append(await _resume(broadcast, record, record.source, settings))
        except TidegateError as error:
            log.warning("broadcast %s was not resumed: %s", record.name, error)
    return started


async def _abandoned(running: RunningCampaigns, store: CampaignStore, clock: Clock) -> list[CampaignRecord]:
    """Return those that have not ended and that no process runs.

    One that was reported a moment ago may be another process's: it is if a further report comes.
    """
    before = {
        (one.bot, one.name): one
        for one in await store.all()
        if one.state in {"running", "paused", "stopped"} and not running.is_running(one.bot, one.name)
    }
    if any(one.at(clock.now()).state != "stopped" for one in before.values()):
        await clock.sleep(GONE_AFTER)
    return [
        one
        for one in await store.all()
        if (known := before.get((one.bot, one.name))) is not None and known.changed_at == one.changed_at
    ]


async def _resume(
    broadcast: Broadcast, record: CampaignRecord, source: SqlSource, settings: Settings
) -> Campaign:
    address = source.database or _database_url(settings)
    if not address:
        raise BadInputError("its audience is in the database of DATABASE_URL, which is not set")
    log.info("broadcast %s is resumed", record.name)
    return await broadcast(
        record.name,
        sql(address, source.query, **source.parameters),
        source.letter,
        bot=record.bot,
        ahead=record.ahead,
        remember=record.remember,
        total=record.total,
        **record.fields,
    )


def _database_url(settings: Settings) -> str | None:
    return None if settings.database_url is None else settings.database_url.get_secret_value()
