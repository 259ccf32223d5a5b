"""`tidegate move`."""
