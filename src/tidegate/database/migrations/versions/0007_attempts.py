"""Attempts that did not deliver a message."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

TABLE = "tidegate_attempts"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("ticket", sa.Text, nullable=False),
        sa.Column("bot", sa.BigInteger, nullable=False),
        sa.Column("chat_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("description", sa.Text),
        sa.Column("wait", sa.Double),
    )
    op.create_index("ix_tidegate_attempts_ticket", TABLE, ["ticket", "at"])
    op.create_index("ix_tidegate_attempts_chat", TABLE, ["chat_id", "bot"])
    op.create_index("ix_tidegate_attempts_time", TABLE, ["at"])
