"""`where`: its two grammars, and what a condition selects."""
