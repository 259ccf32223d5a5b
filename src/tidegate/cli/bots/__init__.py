"""`tidegate bot`."""
