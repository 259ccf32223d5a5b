"""Rows of broadcasts that were uploaded."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "tidegate_audiences",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("bot", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("terms", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    holds_name = sa.text("state IN ('ready', 'begun')")
    op.create_index(
        "ix_tidegate_audiences_name",
        "tidegate_audiences",
        ["bot", "name"],
        unique=True,
        postgresql_where=holds_name,
        sqlite_where=holds_name,
    )
    op.create_table(
        "tidegate_audience_rows",
        sa.Column("audience", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("chat", sa.Text, nullable=False),
        sa.Column("fields", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_tidegate_audience_rows_chat", "tidegate_audience_rows", ["chat", "audience"], unique=True
    )
