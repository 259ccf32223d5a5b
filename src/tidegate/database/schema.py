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
_REPLY: Final = text("reply_to_message_id IS NOT NULL")
_FAILED: Final = text("state NOT IN ('delivered', 'received')")
_TICKET: Final = text("ticket IS NOT NULL")
_HOLDS_NAME: Final = text("state IN ('ready', 'begun')")

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

tokens: Final = Table(
    "tidegate_tokens",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("bot", BigInteger),  # the only one that it may use; NULL: all
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the secret, which is stored nowhere
    Column("prefix", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    Index("ix_tidegate_tokens_digest", "digest", unique=True),
    sqlite_autoincrement=True,  # an id is not given twice
)

sessions: Final = Table(
    "tidegate_sessions",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("token_id", BigInteger),  # NULL: begun by a one-time link
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the cookie
    Column("is_active", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("address", Text),
    Column("agent", Text),
    Index("ix_tidegate_sessions_digest", "digest", unique=True),
    Index("ix_sessions_token_active_expires", "token_id", "is_active", "expires_at"),
    Index("ix_sessions_expires_active", "expires_at", "is_active"),
    sqlite_autoincrement=True,
)

login_links: Final = Table(
    "tidegate_login_links",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the code
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("used_at", Double),
    Index("ix_tidegate_login_links_digest", "digest", unique=True),
    sqlite_autoincrement=True,
)

audit: Final = Table(
    "tidegate_audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("at", Double, nullable=False),
    Column("principal", Text, nullable=False),
    Column("token_id", BigInteger),
    Column("action", Text, nullable=False),
    Column("bot", BigInteger),
    Column("target", Text),
    Column("detail", Text),
    Index("ix_tidegate_audit_at", "at"),
    Index("ix_tidegate_audit_action", "action", "id"),
    Index("ix_tidegate_audit_bot", "bot", "id"),
    sqlite_autoincrement=True,
)

# The words of the texts are indexed beside it: on PostgreSQL in a generated column `words`, on SQLite in the
# FTS5 table `tidegate_messages_words`.
messages: Final = Table(
    "tidegate_messages",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("key", Text, nullable=False),  # the same if a row is written twice
    Column("bot", BigInteger, nullable=False),
    Column("direction", Text, nullable=False),  # in, out
    Column("chat_id", Text, nullable=False),  # a number or @name
    Column("telegram_message_id", BigInteger),
    Column("reply_to_message_id", BigInteger),
    Column("user_id", BigInteger),  # who wrote it
    Column("kind", Text, nullable=False),  # the method, or the kind of the update
    Column("is_change", Boolean, nullable=False),  # an edit or a deletion: the message has a row of its own
    Column("text", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("description", Text),
    Column("ticket", Text),
    Column("priority", Text),
    Column("attempts", Integer),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Index("ix_messages_chat_telegram_msg", "chat_id", "telegram_message_id"),
    Index(
        "ix_messages_reply_lookup",
        "chat_id",
        "bot",
        "reply_to_message_id",
        postgresql_where=_REPLY,
        sqlite_where=_REPLY,
    ),
    Index("ix_messages_incoming", "bot", "created_at", "chat_id"),
    Index("ix_tidegate_messages_time", "created_at", "id", "direction", "state", "chat_id"),
    Index("ix_tidegate_messages_failed", "created_at", "id", postgresql_where=_FAILED, sqlite_where=_FAILED),
    Index("ix_tidegate_messages_ticket", "ticket", postgresql_where=_TICKET, sqlite_where=_TICKET),
    Index("ix_tidegate_messages_key", "key", unique=True),
)

# Attempts that did not deliver a queued message, by its ticket.
attempts: Final = Table(
    "tidegate_attempts",
    metadata,
    Column("key", Text, primary_key=True),  # the same if a row is written twice
    Column("ticket", Text, nullable=False),
    Column("bot", BigInteger, nullable=False),
    Column("chat_id", Text, nullable=False),  # a number or @name
    Column("number", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("description", Text),
    Column("wait", Double),
    Index("ix_tidegate_attempts_ticket", "ticket", "at"),
    Index("ix_tidegate_attempts_chat", "chat_id", "bot"),
    Index("ix_tidegate_attempts_time", "at"),
)

audiences: Final = Table(
    "tidegate_audiences",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("bot", BigInteger, nullable=False),
    Column("name", Text, nullable=False),  # of the broadcast
    Column("state", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),  # once they are complete
    Column("digest", Text, nullable=False),  # likewise
    Column("changed_at", Double, nullable=False),
    Column("terms", LargeBinary, nullable=False),  # the letter and the rest, as MessagePack
    Index(
        "ix_tidegate_audiences_name",
        "bot",
        "name",
        unique=True,
        postgresql_where=_HOLDS_NAME,
        sqlite_where=_HOLDS_NAME,
    ),
    sqlite_autoincrement=True,  # an id is not given twice
)

audience_rows: Final = Table(
    "tidegate_audience_rows",
    metadata,
    Column("audience", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("chat", Text, nullable=False),  # a number, or an @name in lower case
    Column("fields", Text, nullable=False),  # JSON
    Index("ix_tidegate_audience_rows_chat", "chat", "audience", unique=True),
    sqlite_with_rowid=False,
)

idempotency: Final = Table(
    "tidegate_idempotency",
    metadata,
    Column("owner", Text, primary_key=True),  # a token, or a session without one
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),  # SHA-256 of the request
    Column("at", Double, nullable=False),
    Column("status", Integer),  # NULL: it is being worked on
    Column("body", LargeBinary),
    Index("ix_tidegate_idempotency_at", "at"),
)

# Changes that were asked for and can still be undone, or that are being made. One that has ended has no row.
pending_actions: Final = Table(
    "tidegate_pending_actions",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("action", Text, nullable=False),
    Column("bot", BigInteger),  # NULL: of all bots
    Column("selection", Text, nullable=False),  # JSON
    Column("selected", BigInteger, nullable=False),  # when it was asked for
    Column("done", BigInteger, nullable=False),
    Column("principal", Text, nullable=False),
    Column("token_id", BigInteger),
    Column("asked_at", Double, nullable=False),
    # When it can be claimed: its time, or the end of its lease.
    Column("due_at", Double, nullable=False),
    Column("token", BigInteger, nullable=False),  # of the lease; 0: it was not begun, and can be undone
    Index("ix_tidegate_pending_actions_due", "due_at"),
    sqlite_autoincrement=True,  # an id is not given twice
)
