"""Reminders."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "tidegate_reminders",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("bot", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.BigInteger, nullable=False),
        sa.Column("chat_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("handler", sa.Text),
        sa.Column("schedule", sa.Text, nullable=False),
        sa.Column("zone", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("occurrence_at", sa.Double),
        sa.Column("next_at", sa.Double),
        sa.Column("due_at", sa.Double),
        sa.Column("queued", sa.Text, nullable=False),
        sa.Column("fired", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False),
        sa.Column("merged", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("trouble", sa.Text),
        sqlite_autoincrement=True,
    )
    _index("due", ["due_at", "id"], where="due_at IS NOT NULL AND handler IS NULL")
    _index("handled", ["handler", "due_at", "id"], where="due_at IS NOT NULL AND handler IS NOT NULL")
    _index("user", ["user_id", "id"])
    _index("chat", ["chat_id", "id"])
    _index("key", ["key", "bot"], where="key IS NOT NULL", unique=True)


def _index(name: str, columns: list[str], *, where: str | None = None, unique: bool = False) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        f"ix_tidegate_reminders_{name}",
        "tidegate_reminders",
        columns,
        unique=unique,
        postgresql_where=condition,
        sqlite_where=condition,
    )
