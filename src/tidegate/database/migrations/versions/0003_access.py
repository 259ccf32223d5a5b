"""Access: API tokens, sessions, one-time links, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tidegate_tokens",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("bot", sa.BigInteger),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tidegate_tokens_digest", "tidegate_tokens", ["digest"], unique=True)
    op.create_table(
        "tidegate_sessions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("token_id", sa.BigInteger),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("agent", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tidegate_sessions_digest", "tidegate_sessions", ["digest"], unique=True)
    # A bot with a table of sessions may have indexes of these names in the same database.
    _index_if_free("ix_sessions_token_active_expires", ["token_id", "is_active", "expires_at"])
    _index_if_free("ix_sessions_expires_active", ["expires_at", "is_active"])
    op.create_table(
        "tidegate_login_links",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tidegate_login_links_digest", "tidegate_login_links", ["digest"], unique=True)
    op.create_table(
        "tidegate_audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("token_id", sa.BigInteger),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("bot", sa.BigInteger),
        sa.Column("target", sa.Text),
        sa.Column("detail", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tidegate_audit_at", "tidegate_audit", ["at"])
    op.create_index("ix_tidegate_audit_action", "tidegate_audit", ["action", "id"])
    op.create_index("ix_tidegate_audit_bot", "tidegate_audit", ["bot", "id"])


def _index_if_free(name: str, columns: list[str]) -> None:
    op.create_index(name, "tidegate_sessions", columns, if_not_exists=True)
