"""The bot libraries. Each adapter is imported only when it is used."""
