"""People who wait for payments, a simulated NocoDB with limits, and four bots that poll it, measured."""

from tidegate.sim.polling.scenario import MODES, OURS, Mode, PollingScenario
from tidegate.sim.polling.simulation import PollingReport

__all__ = ["MODES", "OURS", "Mode", "PollingReport", "PollingScenario"]
