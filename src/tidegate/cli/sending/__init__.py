"""`tidegate send` and `tidegate worker`."""
