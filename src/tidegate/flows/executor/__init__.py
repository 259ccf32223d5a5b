"""Runs a flow: events in, effects out, nothing lost and nothing twice, whatever dies in between."""

from tidegate.flows.executor.executor import FlowRunner
from tidegate.flows.executor.locks import LocalSessionLocks
from tidegate.flows.executor.stats import FlowStats
from tidegate.flows.executor.work import WorkContext
from tidegate.flows.port import SessionKey
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions

__all__ = ["FlowRunner", "FlowStats", "LocalSessionLocks", "MemoryFlowSessions", "SessionKey", "WorkContext"]
