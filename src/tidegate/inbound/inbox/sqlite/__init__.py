"""The inbox in the file of the outbox: what arrives and what is answered share commits."""

from tidegate.inbound.inbox.sqlite.inbox import SqliteInbox

__all__ = ["SqliteInbox"]
