"""Who writes more than a bot can answer is held back, so that nobody else waits for it."""

from tidegate.inbound.throttle.rules import ThrottleRules

__all__ = ["ThrottleRules"]
