"""aiogram 3: every call of its bots is paced, and its method objects can be queued."""
