"""`tidegate webhook`."""
