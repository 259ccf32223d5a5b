"""`tidegate doctor`."""
