"""Flows on aiogram: the whole bot, or a router in one of your own."""

from tidegate.adapters.aiogram.flows.executor import FlowExecutor

__all__ = ["FlowExecutor"]
