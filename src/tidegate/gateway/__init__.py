"""The gateway: the Bot API spoken to bots in any language."""
