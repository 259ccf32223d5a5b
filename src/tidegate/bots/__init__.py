"""Part of Tidegate."""
