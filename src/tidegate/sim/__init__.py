"""Simulators: a Telegram and a NocoDB with limits that really count, people who write, and virtual time."""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
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
    from tidegate.sim.virtual_time import VirtualClock, VirtualLoop, run, virtual

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

__getattr__ = lazy_names(
    "tidegate.sim",
    {
        "faults": ("Faults", "Latency"),
        "nocodb.http": ("NocoDbServer",),
        "nocodb.limits": ("NocoLimits",),
        "nocodb.nocodb": ("NocoWire", "SimulatedNocoDb"),
        "telegram.crowd": ("Crowd", "Habits"),
        "telegram.flood_control": ("Limits",),
        "telegram.http": ("TelegramServer",),
        "telegram.people": ("Person",),
        "telegram.telegram": ("SimulatedTelegram",),
        "telegram.world": ("World",),
        "virtual_time": ("VirtualClock", "VirtualLoop", "run", "virtual"),
    },
)
