"""Simulators: a Telegram and a NocoDB with limits that really count, people who write, and virtual time."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.sim import virtual_time as virtual  # the name before 1.0
    from tidegate.sim.faults import Faults, Latency
    from tidegate.sim.nocodb.http import NocoDbServer
    from tidegate.sim.nocodb.limits import NocoLimits
    from tidegate.sim.nocodb.nocodb import NocoWire, SimulatedNocoDb
    from tidegate.sim.telegram.crowd import Crowd, Habits
    from tidegate.sim.telegram.flood_control import Limits
    from tidegate.sim.telegram.http import TelegramServer
    from tidegate.sim.telegram.people import Person
    from tidegate.sim.telegram.telegram import SimulatedTelegram
    from tidegate.sim.telegram.world import World
    from tidegate.sim.virtual_time import VirtualClock, VirtualLoop, run

__all__ = [
    "Crowd",
    "Faults",
    "Habits",
    "Latency",
    "Limits",
    "NocoDbServer",
    "NocoLimits",
    "NocoWire",
    "Person",
    "SimulatedNocoDb",
    "SimulatedTelegram",
    "TelegramServer",
    "VirtualClock",
    "VirtualLoop",
    "World",
    "run",
    "virtual",
]

_MODULES = {
    "Crowd": "telegram.crowd",
    "Faults": "faults",
    "Habits": "telegram.crowd",
    "Latency": "faults",
    "Limits": "telegram.flood_control",
    "NocoDbServer": "nocodb.http",
    "NocoLimits": "nocodb.limits",
    "NocoWire": "nocodb.nocodb",
    "Person": "telegram.people",
    "SimulatedNocoDb": "nocodb.nocodb",
    "SimulatedTelegram": "telegram.telegram",
    "TelegramServer": "telegram.http",
    "VirtualClock": "virtual_time",
    "VirtualLoop": "virtual_time",
    "World": "telegram.world",
    "run": "virtual_time",
}


def __getattr__(name: str) -> object:
    """Import a name on first use: virtual time does not need aiohttp."""
    if name == "virtual":
        return importlib.import_module("tidegate.sim.virtual_time")
    if name not in _MODULES:
        raise AttributeError(f"module 'tidegate.sim' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidegate.sim.{_MODULES[name]}"), name)
