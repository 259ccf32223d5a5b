"""The secret of a bot's webhook, made of its token: every process knows it, and nobody has to store it."""

import hashlib
import hmac
from typing import Final

_PURPOSE: Final = b"tidegate: the secret of a webhook"


def webhook_secret(token: str) -> str:
    """64 hexadecimal characters, sent by Telegram with each update. They tell nothing of the token."""
    return hmac.new(token.encode(), _PURPOSE, hashlib.sha256).hexdigest()
