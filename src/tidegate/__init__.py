"""Tidegate stands between a Telegram bot and everything that limits it."""
