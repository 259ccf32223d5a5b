"""`tidegate key`."""
