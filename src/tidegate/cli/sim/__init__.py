"""`tidegate sim`."""
