"""Where arrivals are held: memory, SQLite, Redis."""
