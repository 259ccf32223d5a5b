"""A bot that takes orders, waits for their payment and confirms it."""
