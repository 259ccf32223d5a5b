"""Runs a flow: events in, effects out, nothing lost and nothing twice, whatever dies in between."""

from tidegate.flows.executor.counting import FlowStats
from tidegate.flows.executor.executor import Executor
from tidegate.flows.executor.memory import MemorySessions
from tidegate.flows.executor.place import Place
from tidegate.flows.executor.turns import LocalTurns
from tidegate.flows.executor.working import WorkContext

__all__ = ["Executor", "FlowStats", "LocalTurns", "MemorySessions", "Place", "WorkContext"]
