"""How Tidegate is watched."""
