"""One index for replies where there were two: `ix_messages_chat_telegram_msg` finds what is replied to."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

TABLE = "tidegate_messages"
NAMES = ("ix_messages_reply_lookup", "ix_tidegate_messages_reply_lookup")  # the second if the first was taken


def upgrade() -> None:
    found = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}
    [name] = [name for name in NAMES if name in found]
    op.drop_index(name, TABLE)
    op.drop_index("ix_tidegate_messages_replies", TABLE)
    condition = sa.text("reply_to_message_id IS NOT NULL")
    op.create_index(
        name,
        TABLE,
        ["chat_id", "bot", "reply_to_message_id"],
        postgresql_where=condition,
        sqlite_where=condition,
    )
