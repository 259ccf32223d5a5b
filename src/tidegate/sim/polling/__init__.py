"""People who wait for payments, a NocoDB that limits, and four bots that poll it: played and measured."""

from tidegate.sim.polling.result import Result
from tidegate.sim.polling.scenario import MODES, OURS, Mode, Scenario

__all__ = ["MODES", "OURS", "Mode", "Result", "Scenario"]
