"""`tidegate inbox`."""
