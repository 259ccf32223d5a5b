"""The outbox: messages wait first come, first served; a line that may not send now lets the others pass."""
