"""What can go wrong between a client and NocoDB: the same weather as everywhere in the simulator."""

from tidegate.sim.faults import PERFECT, Fate, Faults, Latency

NocoFaults = Faults

__all__ = ["PERFECT", "Fate", "Latency", "NocoFaults"]
