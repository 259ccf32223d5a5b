"""The shop as a python-telegram-bot application."""
