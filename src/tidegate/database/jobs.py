"""Records of jobs in SQL: claimed, settled and reported in short transactions."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, RowMapping, Select, bindparam, delete, func, insert, select, update

from tidegate.clock import Clock
from tidegate.database.database import Database, SqlTransaction
from tidegate.database.row_ids import allocate_ids
from tidegate.database.schema import jobs as table
from tidegate.file_codec import unpack_file, with_files_packed
from tidegate.jobs.port import JobLease, JobStore, Submission
from tidegate.jobs.record import (
    JobOutcome,
    JobRecord,
    JobState,
    NewJob,
    cancel_job,
    claim_job,
    retry_job,
    settle_job,
)
from tidegate.model import BotId, ChatId
from tidegate.stores.group_commit import SerialGroupCommit
from tidegate.stores.message_codec import CODEC_ERRORS, LONGEST_CAUSE

log = logging.getLogger("tidegate.store")

KEY_LOCK: Final = 7_433_683_012  # the advisory lock of those that add keys
IDS_AT_ONCE: Final = 500  # in one statement
ADDED_AT_ONCE: Final = 500  # jobs in one transaction

_id = table.c.id
# What running changes is in columns; the body is written once.
_STATE_COLUMNS: Final = (
    "state",
    "token",
    "attempts",
    "crashes",
    "due_at",
    "started_at",
    "ended_at",
    "report_at",
    "result",
    "error",
)
_BODY_FIELDS: Final = ("args", "kwargs", "retries", "pause", "timeout", "delay")
_PLAIN_COLUMNS: Final = tuple(
    str(column.name)
    for column in table.c
    if column.name not in {"chat_id", "state", "body", "result", "report_at"}
)
_UPDATE: Final = (
    update(table).where(_id == bindparam("row")).values({name: bindparam(name) for name in _STATE_COLUMNS})
)
_decoder = msgspec.msgpack.Decoder(ext_hook=unpack_file)

Decide = Callable[[JobRecord, float], JobRecord | None]  # the job as it is to be; None: it stays


class SqlJobs(JobStore):
    """The jobs of a database, which is opened with them, and closed by its owner."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._adding = SerialGroupCommit(self._add, ADDED_AT_ONCE, "adds jobs")

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def add(self, jobs: Sequence[NewJob]) -> list[Submission]:
        return await self._adding.ask(jobs)

    async def _add(self, requests: list[Sequence[NewJob]]) -> list[list[Submission]]:
        """Add the jobs of many callers in one transaction: each would wait for the disk otherwise."""
        now = self._clock.now()
        async with self._database.write() as transaction:
            known = await _known_keys(transaction, [job for request in requests for job in request])
            added: dict[Place, NewJob] = {}
            is_new: list[list[bool]] = []
            for request in requests:
                is_new.append([])
                for job in request:
                    place = _place_of(job)
                    is_new[-1].append(place not in known and place not in added)
                    if is_new[-1][-1]:
                        added[place] = job
            known |= await _insert(transaction, added, now)
        return [
            [Submission(known[_place_of(job)], new) for job, new in zip(request, news, strict=True)]
            for request, news in zip(requests, is_new, strict=True)
        ]

    async def get(self, ids: Iterable[int]) -> list[JobRecord]:
        async with self._database.read(latest=True) as transaction:
            return [_decode(row) for some in _chunks(ids) for row in await transaction.rows(_rows_of(some))]

    async def find(
        self,
        *,
        states: Iterable[JobState] = (),
        name: str | None = None,
        chat_id: ChatId | None = None,
        bot: BotId | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        query = select(table).order_by(_id.desc()).limit(limit)
        if wanted := [str(state) for state in states]:
            query = query.where(table.c.state.in_(wanted))
        if name is not None:
            query = query.where(table.c.name == name)
        if chat_id is not None:
            query = query.where(table.c.chat_id == str(chat_id))
        if bot is not None:
            query = query.where(table.c.bot == bot)
        if before is not None:
            query = query.where(_id < before)
        async with self._database.read(latest=True) as transaction:
            return list(map(_decode, await transaction.rows(query)))

    async def counts(self) -> Mapping[tuple[str, JobState], int]:
        query = select(table.c.name, table.c.state, func.count().label("jobs"))
        async with self._database.read(latest=True) as transaction:
            rows = await transaction.rows(query.group_by(table.c.name, table.c.state))
        return {(row["name"], JobState(row["state"])): row["jobs"] for row in rows}

    async def cancel(self, ids: Iterable[int]) -> list[JobRecord]:
        return await self._change(ids, lambda job, now: None if job.has_ended else cancel_job(job, now))

    async def retry(self, ids: Iterable[int]) -> list[JobRecord]:
        def decide(job: JobRecord, now: float) -> JobRecord | None:
            is_meant = job.state in {JobState.DEAD, JobState.CANCELLED, JobState.SENT}
            return retry_job(job, now) if is_meant else None

        return await self._change(ids, decide)

    async def remove(
        self,
        *,
        ended_before: float | None = None,
        unreported: bool = False,
        chat_id: ChatId | None = None,
        bot: BotId | None = None,
    ) -> int:
        conditions: list[ColumnElement[bool]] = []
        if ended_before is not None:
            conditions.append(table.c.ended_at < ended_before)
            if not unreported:
                conditions.append(table.c.report_at.is_(None))
        if chat_id is not None:
            conditions.append(table.c.chat_id == str(chat_id))
        if not conditions:  # whoever names nothing deletes nothing
            return 0
        if bot is not None:
            conditions.append(table.c.bot == bot)
        async with self._database.write() as transaction:
            return (await transaction.execute(delete(table).where(*conditions))).rowcount

    async def rewrite(self) -> None:
        await self._database.rewrite()

    async def claim(
        self, names: Iterable[str], limit: int, lease: float, state: JobState = JobState.RUNNING
    ) -> list[JobRecord]:
        now = self._clock.now()
        query = _due(table.c.due_at, names, now, limit)
        async with self._database.write() as transaction:
            found = await _readable(transaction, query, "due_at")
            claimed = [claim_job(job, state, now, lease) for job in found]
            await _write(transaction, claimed)
        for before, job in zip(found, claimed, strict=True):
            if job.crashes > before.crashes:
                _log_crash(job)
        return [job for job in claimed if not job.has_ended]

    async def begin(self, lease: JobLease, seconds: float) -> JobRecord | None:
        def decide(job: JobRecord, now: float) -> JobRecord | None:
            is_sent = job.state is JobState.SENT and job.token == lease.token
            running = {"state": JobState.RUNNING, "started_at": now, "due_at": now + seconds}
            return msgspec.structs.replace(job, **running) if is_sent else None

        return next(iter(await self._change([lease.id], decide)), None)

    async def renew(self, leases: Sequence[JobLease], seconds: float) -> set[int]:
        until = self._clock.now() + seconds
        held = set()
        async with self._database.write() as transaction:
            for lease in leases:
                query = update(table).where(_is_held(lease)).values(due_at=until)
                if (await transaction.execute(query)).rowcount:
                    held.add(lease.id)
        return held

    async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
        def decide(job: JobRecord, now: float) -> JobRecord | None:
            is_held = job.token == lease.token and not job.has_ended and job.state is not JobState.QUEUED
            return settle_job(job, outcome, now) if is_held else None

        return next(iter(await self._change([lease.id], decide)), None)

    async def claim_ended(self, names: Iterable[str], limit: int, lease: float) -> list[JobRecord]:
        now = self._clock.now()
        query = _due(table.c.report_at, names, now, limit)
        async with self._database.write() as transaction:
            jobs = await _readable(transaction, query, "report_at")
            if jobs:
                held = update(table).where(_id.in_([job.id for job in jobs]))
                await transaction.execute(held.values(report_at=now + lease))
        return jobs

    async def reported(self, lease: JobLease) -> None:
        query = update(table).where(_id == lease.id, table.c.token == lease.token).values(report_at=None)
        async with self._database.write() as transaction:
            await transaction.execute(query)

    async def next_due(self, names: Iterable[str]) -> float | None:
        due, wanted = table.c.due_at, table.c.name.in_(list(names))
        async with self._database.read(latest=True) as transaction:
            found = await transaction.scalar(select(func.min(due)).where(wanted, due.is_not(None)))
        return None if found is None else float(found)

    async def _change(self, ids: Iterable[int], decide: Decide) -> list[JobRecord]:
        """Change jobs one by one in a transaction; return those that have changed."""
        now, changed = self._clock.now(), list[JobRecord]()
        async with self._database.write() as transaction:
            for some in _chunks(ids):
                for row in await transaction.rows(_rows_of(some).with_for_update()):
                    if (after := decide(_decode(row), now)) is not None:
                        changed.append(after)
            await _write(transaction, changed)
        return changed


Place = int | tuple[str, str | None]  # of a job among others: its key, or its identity if it has none


def _place_of(job: NewJob) -> Place:
    return id(job) if job.key is None else (job.name, job.key)


async def _known_keys(transaction: SqlTransaction, jobs: Sequence[NewJob]) -> dict[Place, JobRecord]:
    """Return the stored jobs whose keys are added again. On PostgreSQL those that add keys take turns."""
    keys = {job.key for job in jobs if job.key is not None}
    if not keys:
        return {}
    if transaction.dialect == "postgresql":
        await transaction.execute(select(func.pg_advisory_xact_lock(KEY_LOCK)))
    names = {job.name for job in jobs}
    rows = await transaction.rows(select(table).where(table.c.name.in_(names), table.c.key.in_(keys)))
    return {(row["name"], row["key"]): _decode(row) for row in rows}


async def _insert(
    transaction: SqlTransaction, jobs: Mapping[Place, NewJob], now: float
) -> dict[Place, JobRecord]:
    if not jobs:
        return {}
    ids = await allocate_ids(transaction, table, len(jobs))  # rows that return theirs are sent one by one
    added = {
        place: JobRecord(**msgspec.structs.asdict(job), id=number, created_at=now, due_at=now + job.delay)
        for (place, job), number in zip(jobs.items(), ids, strict=True)
    }
    times = ("id", "created_at", "due_at")
    rows = [_new_row(job) | {name: getattr(job, name) for name in times} for job in added.values()]
    await transaction.execute(insert(table), rows)
    return added


def _chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    """In the order in which rows are locked: two that change the same ones do not wait for each other."""
    wanted = sorted(set(ids))
    return (wanted[at : at + IDS_AT_ONCE] for at in range(0, len(wanted), IDS_AT_ONCE))


def _rows_of(ids: list[int]) -> "Select[Any]":
    return select(table).where(_id.in_(ids)).order_by(_id)


def _due(column: Any, names: Iterable[str], now: float, limit: int) -> Any:  # noqa: ANN401  (SQLAlchemy's)
    """The rows that are due by a column, the earliest first; those that others hold are passed over."""
    query = select(table).where(column <= now, table.c.name.in_(list(names)))
    return query.order_by(column, _id).limit(limit).with_for_update(skip_locked=True)


def _is_held(lease: JobLease) -> ColumnElement[bool]:
    running = table.c.state == str(JobState.RUNNING)
    return (_id == lease.id) & (table.c.token == lease.token) & running


async def _write(transaction: SqlTransaction, jobs: Iterable[JobRecord]) -> None:
    if rows := [_state_row(job) | {"row": job.id} for job in jobs]:
        await transaction.execute(_UPDATE, rows)


async def _readable(transaction: SqlTransaction, query: Any, column: str) -> list[JobRecord]:  # noqa: ANN401
    """Return the jobs of a query. Rows that cannot be decoded are due no more, and kept."""
    jobs = []
    for row in await transaction.rows(query):
        try:
            jobs.append(_decoded(row))
        except CODEC_ERRORS as error:
            cause = str(error)[:LONGEST_CAUSE] or type(error).__name__
            log.error("job %s cannot be decoded, and is set aside with its bytes: %s", row["id"], cause)  # noqa: TRY400
            aside = {"state": str(JobState.DEAD), "error": f"unreadable: {cause}", column: None}
            await transaction.execute(update(table).where(_id == row["id"]).values(aside))
    return jobs


def _new_row(job: NewJob) -> dict[str, Any]:
    body = {name: getattr(job, name) for name in _BODY_FIELDS}
    return {
        "name": job.name,
        "key": job.key,
        "bot": job.bot,
        "chat_id": None if job.chat_id is None else str(job.chat_id),
        "state": str(JobState.QUEUED),
        "token": 0,
        "attempts": 0,
        "crashes": 0,
        "body": msgspec.msgpack.encode(with_files_packed(body)),
    }


def _log_crash(job: JobRecord) -> None:
    if job.has_ended:
        log.error("job %s (%s) is dead: %s", job.id, job.name, job.error)
    else:
        log.warning("job %s (%s) runs again, from its start: %s", job.id, job.name, job.error)


def _state_row(job: JobRecord) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in _STATE_COLUMNS if name != "report_at"}
    is_told = job.has_ended and job.state is not JobState.CANCELLED
    packed = None if job.result is None else msgspec.msgpack.encode(with_files_packed(job.result))
    return row | {
        "state": str(job.state),
        "report_at": job.ended_at if is_told else None,
        "result": packed,
        "error": None if job.error is None else job.error.replace("\0", "\\0"),  # PostgreSQL takes none
    }


def _decoded(row: RowMapping) -> JobRecord:
    chat, result = row["chat_id"], row["result"]
    known = {
        **_decoder.decode(row["body"]),
        **{name: row[name] for name in _PLAIN_COLUMNS},
        "state": row["state"],
        "chat_id": chat if chat is None or chat.startswith("@") else int(chat),
        "result": None if result is None else _decoder.decode(result),
    }
    return msgspec.convert(known, JobRecord)


def _decode(row: RowMapping) -> JobRecord:
    """Return the job of a row; if its bytes are damaged, as dead with the reason, so that it can be seen."""
    try:
        return _decoded(row)
    except CODEC_ERRORS as error:
        plain = {name: row[name] for name in _PLAIN_COLUMNS}
        cause = f"unreadable: {str(error)[:LONGEST_CAUSE]}"
        return JobRecord(**plain | {"state": JobState.DEAD, "error": cause, "due_at": None})
