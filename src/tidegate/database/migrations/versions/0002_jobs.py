"""Jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "tidegate_jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("bot", sa.BigInteger),
        sa.Column("chat_id", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("crashes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("report_at", sa.Double),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("result", sa.LargeBinary),
        sa.Column("error", sa.Text),
        sqlite_autoincrement=True,
    )
    _index("due", ["due_at", "id"], where="due_at IS NOT NULL")
    _index("report", ["report_at", "id"], where="report_at IS NOT NULL")
    _index("key", ["name", "key"], where="key IS NOT NULL", unique=True)
    _index("state", ["name", "state"])
    _index("ended", ["ended_at"])
    _index("chat", ["chat_id", "id"])


def _index(name: str, columns: list[str], *, where: str | None = None, unique: bool = False) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(
        f"ix_tidegate_jobs_{name}",
        "tidegate_jobs",
        columns,
        unique=unique,
        postgresql_where=condition,
        sqlite_where=condition,
    )
