"""`tidegate stress`."""
