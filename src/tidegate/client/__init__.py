"""Clients of the HTTP API, for programs without a gate: a Celery task, a Django view, another service."""

from tidegate.client.clients import AsyncTidegateClient, TidegateClient
from tidegate.client.verbs import (
    BotLimitsInfo,
    BroadcastInfo,
    LettersDone,
    LineError,
    MessageInfo,
    QueueStats,
    SendSummary,
    WhyInfo,
)

__all__ = [
    "AsyncTidegateClient",
    "BotLimitsInfo",
    "BroadcastInfo",
    "LettersDone",
    "LineError",
    "MessageInfo",
    "QueueStats",
    "SendSummary",
    "TidegateClient",
    "WhyInfo",
]
