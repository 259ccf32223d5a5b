"""② … or something changed: many wait for what an API will say, and few requests ask for it."""
