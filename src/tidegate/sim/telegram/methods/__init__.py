"""The Bot API's methods: each validates, counts itself, changes the world, and returns Telegram's result.

Only getUpdates and the webhook methods are elsewhere (`telegram.py`), as they wait or reach out.
"""

from typing import Final

from tidegate.sim.telegram.methods import (
    chats,
    commands,
    copying,
    editing,
    files,
    managing,
    payments,
    polls,
    profile,
    queries,
    sending,
)
from tidegate.sim.telegram.methods.base import Methods
from tidegate.sim.telegram.refusals import NOT_FOUND, UNAUTHORIZED

__all__ = ["METHODS", "NOT_FOUND", "UNAUTHORIZED"]

METHODS: Final[Methods] = {
    **profile.METHODS,
    **commands.METHODS,
    **sending.METHODS,
    **files.METHODS,
    **copying.METHODS,
    **editing.METHODS,
    **polls.METHODS,
    **payments.METHODS,
    **queries.METHODS,
    **chats.METHODS,
    **managing.METHODS,
}
