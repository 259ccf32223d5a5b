"""`tidegate broadcast`."""
