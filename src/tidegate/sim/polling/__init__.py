"""People who wait for payments, a simulated NocoDB with limits, and four bots that poll it, measured."""

from tidegate.sim.polling.report import PollingReport
from tidegate.sim.polling.scenario import MODES, OURS, Mode, PollingScenario

__all__ = ["MODES", "OURS", "Mode", "PollingReport", "PollingScenario"]
