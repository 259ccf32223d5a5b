"""A NocoDB whose limit really counts: in this process, or over HTTP."""

from tidegate.sim.nocodb.answers import Answer, ConnectionCut
from tidegate.sim.nocodb.faults import NocoFaults
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.nocodb.nocodb import NocoDb

__all__ = ["Answer", "ConnectionCut", "NocoDb", "NocoFaults", "NocoLimits"]
