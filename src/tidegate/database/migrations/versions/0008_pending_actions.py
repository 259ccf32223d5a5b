"""Changes that can be undone for a while."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "tidegate_pending_actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("bot", sa.BigInteger),
        sa.Column("selection", sa.Text, nullable=False),
        sa.Column("selected", sa.BigInteger, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("token_id", sa.BigInteger),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tidegate_pending_actions_due", "tidegate_pending_actions", ["due_at"])
