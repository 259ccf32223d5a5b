"""The Bot API's methods: each validates, counts itself, changes the world, and returns Telegram's result.

getUpdates and the webhook methods are in `update_delivery.py`, as they wait or open connections.
"""

from typing import Final

from tidegate.sim.telegram.call import Methods
from tidegate.sim.telegram.methods import chats, editing, files, interactions, messages, payments, profile

METHODS: Final[Methods] = {
    **profile.METHODS,
    **messages.METHODS,
    **files.METHODS,
    **editing.METHODS,
    **interactions.METHODS,
    **payments.METHODS,
    **chats.METHODS,
}
