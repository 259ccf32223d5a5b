"""A simulated NocoDB whose limit really counts: in this process, or over HTTP."""

from tidegate.sim.faults import ConnectionCut, Faults
from tidegate.sim.nocodb.answers import NocoDbAnswer
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.nocodb.nocodb import NocoWire, SimulatedNocoDb

NocoDb = SimulatedNocoDb  # the name before 1.0
__all__ = ["ConnectionCut", "Faults", "NocoDb", "NocoDbAnswer", "NocoLimits", "NocoWire", "SimulatedNocoDb"]
