"""History: messages in and out, with a search of their texts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TABLE = "tidegate_messages"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("bot", sa.BigInteger, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("chat_id", sa.Text, nullable=False),
        sa.Column("telegram_message_id", sa.BigInteger),
        sa.Column("reply_to_message_id", sa.BigInteger),
        sa.Column("user_id", sa.BigInteger),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("is_change", sa.Boolean, nullable=False),
        sa.Column("text", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("description", sa.Text),
        sa.Column("ticket", sa.Text),
        sa.Column("priority", sa.Text),
        sa.Column("attempts", sa.Integer),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
    )
    _index("ix_messages_chat_telegram_msg", "chat_id", "telegram_message_id")
    _index("ix_messages_reply_lookup", "chat_id", "bot", "telegram_message_id")
    _index("ix_messages_incoming", "bot", "created_at", "chat_id")
    _index("ix_tidegate_messages_time", "created_at", "id", "direction", "state", "chat_id")
    _index(
        "ix_tidegate_messages_replies",
        "chat_id",
        "reply_to_message_id",
        where="reply_to_message_id IS NOT NULL",
    )
    _index("ix_tidegate_messages_failed", "created_at", "id", where="state NOT IN ('delivered', 'received')")
    _index("ix_tidegate_messages_ticket", "ticket", where="ticket IS NOT NULL")
    _index("ix_tidegate_messages_key", "key", unique=True)
    if op.get_bind().dialect.name == "sqlite":
        _index_words_of_sqlite()
    else:
        _index_words_of_postgres()


def _index_words_of_sqlite() -> None:
    """Words are added by whoever writes rows, a batch in one statement, and removed by a trigger.

    The chat is a word, too: a search in one chat does not look at the others. Letters keep their accents, as
    they do on PostgreSQL.
    """
    words = f"{TABLE}_words"
    op.execute(
        f"CREATE VIRTUAL TABLE {words} USING fts5(text, chat_id, content='{TABLE}', content_rowid='id',"
        " columnsize=0, tokenize='unicode61 remove_diacritics 0')"
    )
    # Each batch is a segment of the index. To merge them half as often saves a third of the time of a write.
    op.execute(f"INSERT INTO {words} ({words}, rank) VALUES ('automerge', 8)")  # noqa: S608
    op.execute(
        f"CREATE TRIGGER {words}_removed AFTER DELETE ON {TABLE} WHEN old.text IS NOT NULL BEGIN"  # noqa: S608
        f" INSERT INTO {words} ({words}, rowid, text, chat_id)"
        " VALUES ('delete', old.id, old.text, old.chat_id); END"
    )


def _index_words_of_postgres() -> None:
    words = "to_tsvector('simple', coalesce(text, ''))"
    op.execute(f"ALTER TABLE {TABLE} ADD COLUMN words tsvector GENERATED ALWAYS AS ({words}) STORED")
    op.execute(f"CREATE INDEX ix_tidegate_messages_words ON {TABLE} USING gin (words)")


def _index(name: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        _free_name(name),
        TABLE,
        list(columns),
        unique=unique,
        postgresql_where=condition,
        sqlite_where=condition,
    )


def _free_name(name: str) -> str:
    """A bot that keeps its own messages in this database may have used a name that does not say Tidegate."""
    bind = op.get_bind()
    taken = {
        "sqlite": "SELECT 1 FROM sqlite_master WHERE name = :name",
        "postgresql": "SELECT 1 WHERE to_regclass(:name) IS NOT NULL",
    }
    if bind.execute(sa.text(taken[bind.dialect.name]), {"name": name}).first() is None:
        return name
    return name.replace("ix_", "ix_tidegate_", 1)
