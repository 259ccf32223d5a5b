"""Tidegate stands between a Telegram bot and everything that limits it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.app import Tidegate
    from tidegate.model import File, Priority
    from tidegate.roster import Bot
    from tidegate.tickets import LiveTicket, Receipt

__all__ = ["Bot", "File", "LiveTicket", "Priority", "Receipt", "Tidegate"]


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: the command line starts faster without the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    from tidegate import app, model, roster, tickets  # noqa: PLC0415

    return next(getattr(module, name) for module in (app, roster, tickets, model) if hasattr(module, name))
