"""`tidegate queue`."""
