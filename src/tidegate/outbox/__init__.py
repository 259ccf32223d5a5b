"""Where messages wait: first come, first served, and whoever may not go now lets the others pass."""
