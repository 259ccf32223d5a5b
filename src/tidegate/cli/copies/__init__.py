"""`tidegate backup`, `restore` and `forget`."""
