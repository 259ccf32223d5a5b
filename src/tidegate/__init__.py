"""Tidegate stands between a Telegram bot and everything that limits it."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.adapters.aiogram.flows import FlowExecutor
    from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
    from tidegate.adapters.ptb.call import CallOptions
    from tidegate.bots.registry import Bot
    from tidegate.broadcast.sql import sql
    from tidegate.gate import Tidegate
    from tidegate.inbound.hook_signature import HmacSignature
    from tidegate.inbound.signed_hooks import HookEvent
    from tidegate.inbound.throttle import ThrottleRules
    from tidegate.model import File, Priority
    from tidegate.outbox.tickets import LiveTicket, Receipt

__all__ = [
    "Bot",
    "CallOptions",
    "File",
    "FlowExecutor",
    "HmacSignature",
    "HookEvent",
    "LiveTicket",
    "Priority",
    "Receipt",
    "SqliteStorage",
    "ThrottleRules",
    "Tidegate",
    "sql",
]

_PLACES = {
    "Bot": "bots.registry",
    "CallOptions": "adapters.ptb.call",
    "File": "model",
    "FlowExecutor": "adapters.aiogram.flows",
    "HmacSignature": "inbound.hook_signature",
    "HookEvent": "inbound.signed_hooks",
    "LiveTicket": "outbox.tickets",
    "Priority": "model",
    "Receipt": "outbox.tickets",
    "SqliteStorage": "adapters.aiogram.fsm_storage",
    "ThrottleRules": "inbound.throttle",
    "Tidegate": "gate",
    "sql": "broadcast.sql",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: the command line starts faster without the rest."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidegate.{_PLACES[name]}"), name)
