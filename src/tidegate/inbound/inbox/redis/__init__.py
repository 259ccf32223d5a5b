"""Arrivals in Redis: for many processes."""

from tidegate.inbound.inbox.redis.inbox import RedisInbox

__all__ = ["RedisInbox"]
