"""People who wait for payments, a NocoDB that limits, and four bots that poll it: played and measured."""

from tidegate.sim.polling.report import PollingReport
from tidegate.sim.polling.scenario import MODES, OURS, Mode, PollingScenario

__all__ = ["MODES", "OURS", "Mode", "PollingReport", "PollingScenario"]
