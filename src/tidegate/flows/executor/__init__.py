"""Runs a flow. It knows no bot library: an adapter gives it events, and effects go through the gate."""

from tidegate.flows.executor.executor import FlowRunner
from tidegate.flows.executor.stats import FlowStats
from tidegate.flows.executor.work import WorkContext
from tidegate.flows.port import SessionKey

__all__ = ["FlowRunner", "FlowStats", "SessionKey", "WorkContext"]
