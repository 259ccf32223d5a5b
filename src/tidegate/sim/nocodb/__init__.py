"""A NocoDB whose limit really counts: in this process, or over HTTP."""

from tidegate.sim.nocodb.answers import NocoDbAnswer, NocoDbConnectionCut
from tidegate.sim.nocodb.faults import NocoFaults
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.nocodb.nocodb import SimulatedNocoDb

__all__ = ["NocoDbAnswer", "NocoDbConnectionCut", "NocoFaults", "NocoLimits", "SimulatedNocoDb"]
