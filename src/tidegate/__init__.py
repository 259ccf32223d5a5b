"""Tidegate stands between a Telegram bot and everything that limits it."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.adapters.aiogram.flows import FlowExecutor
    from tidegate.app import Tidegate
    from tidegate.audience.sql import sql
    from tidegate.inbound.throttle.rules import ThrottleRules
    from tidegate.model import File, Priority
    from tidegate.roster import Bot
    from tidegate.tickets import LiveTicket, Receipt

__all__ = [
    "Bot",
    "File",
    "FlowExecutor",
    "LiveTicket",
    "Priority",
    "Receipt",
    "ThrottleRules",
    "Tidegate",
    "sql",
]

_PLACES = {
    "Bot": "roster",
    "File": "model",
    "FlowExecutor": "adapters.aiogram.flows",
    "LiveTicket": "tickets",
    "Priority": "model",
    "Receipt": "tickets",
    "ThrottleRules": "inbound.throttle.rules",
    "Tidegate": "app",
    "sql": "audience.sql",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: the command line starts faster without the rest."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidegate.{_PLACES[name]}"), name)
