"""Jobs: heavy functions that run outside of the bot's process, and come back as messages."""
