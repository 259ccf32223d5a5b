"""The tables as they are now. How they came to be is in `migrations/`; a test compares both.

All names begin with `tidegate_`: the database may be that of the bot itself, with tables of its own.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

metadata: Final = MetaData()
_IN_QUEUE: Final = text("due_at IS NOT NULL AND handler IS NULL")
_HANDLED: Final = text("due_at IS NOT NULL AND handler IS NOT NULL")
_KEYED: Final = text("key IS NOT NULL")
_TO_RUN: Final = text("due_at IS NOT NULL")
_TO_REPORT: Final = text("report_at IS NOT NULL")

reminders: Final = Table(
    "tidegate_reminders",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("bot", BigInteger, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("chat_id", Text, nullable=False),  # a number or @name
    Column("key", Text),
    Column("handler", Text),
    Column("schedule", Text, nullable=False),  # JSON
    Column("zone", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("occurrence_at", Double),
    Column("next_at", Double),
    # When it can be claimed: next_at, or the end of its lease. NULL: it is paused, or has ended.
    Column("due_at", Double),
    Column("queued", Text, nullable=False),  # JSON
    Column("fired", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("merged", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # the rest, as MessagePack
    Column("trouble", Text),  # why it was set aside: its row cannot be decoded
    Index("ix_tidegate_reminders_due", "due_at", "id", postgresql_where=_IN_QUEUE, sqlite_where=_IN_QUEUE),
    Index(
        "ix_tidegate_reminders_handled",
        "handler",
        "due_at",
        "id",
        postgresql_where=_HANDLED,
        sqlite_where=_HANDLED,
    ),
    Index("ix_tidegate_reminders_user", "user_id", "id"),
    Index("ix_tidegate_reminders_chat", "chat_id", "id"),
    Index(
        "ix_tidegate_reminders_key", "key", "bot", unique=True, postgresql_where=_KEYED, sqlite_where=_KEYED
    ),
    sqlite_autoincrement=True,  # an id is not given twice
)

jobs: Final = Table(
    "tidegate_jobs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("key", Text),
    Column("bot", BigInteger),
    Column("chat_id", Text),  # a number or @name
    Column("state", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("crashes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    # When it can be claimed: its time, or the end of its lease. NULL: it has ended.
    Column("due_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    # When its end can be reported: its end, or the end of a lease. NULL: there is nothing to report.
    Column("report_at", Double),
    Column("body", LargeBinary, nullable=False),  # the arguments and options, as MessagePack
    Column("result", LargeBinary),  # likewise
    Column("error", Text),
    Index("ix_tidegate_jobs_due", "due_at", "id", postgresql_where=_TO_RUN, sqlite_where=_TO_RUN),
    Index("ix_tidegate_jobs_report", "report_at", "id", postgresql_where=_TO_REPORT, sqlite_where=_TO_REPORT),
    Index("ix_tidegate_jobs_key", "name", "key", unique=True, postgresql_where=_KEYED, sqlite_where=_KEYED),
    Index("ix_tidegate_jobs_state", "name", "state"),
    Index("ix_tidegate_jobs_ended", "ended_at"),
    Index("ix_tidegate_jobs_chat", "chat_id", "id"),
    sqlite_autoincrement=True,  # an id is not given twice
)
