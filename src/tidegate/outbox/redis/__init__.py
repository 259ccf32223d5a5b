"""The store in Redis: for many machines."""
