"""The Bot API's methods: each validates, counts itself, changes the world, and returns Telegram's result.

Only getUpdates and the webhook methods are elsewhere (`telegram.py`), as they wait or reach out.
"""

from typing import Final

from tidegate.sim.telegram.call import Methods
from tidegate.sim.telegram.methods import chats, editing, files, interactions, messages, payments, profile
from tidegate.sim.telegram.parameters import NOT_FOUND, UNAUTHORIZED

__all__ = ["METHODS", "NOT_FOUND", "UNAUTHORIZED"]

METHODS: Final[Methods] = {
    **profile.METHODS,
    **profile.COMMAND_METHODS,
    **messages.METHODS,
    **files.METHODS,
    **messages.COPY_METHODS,
    **editing.METHODS,
    **interactions.METHODS,
    **payments.METHODS,
    **interactions.QUERY_METHODS,
    **chats.METHODS,
    **chats.MEMBER_METHODS,
}
