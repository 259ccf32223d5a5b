"""A Telegram whose limits really count: in this process, or over HTTP."""

from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.faults import Faults, Latency
from tidegate.sim.telegram.limits import Limits
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import Answer, ConnectionCut, Telegram
from tidegate.sim.telegram.world import World

__all__ = [
    "Answer",
    "ConnectionCut",
    "Crowd",
    "Faults",
    "Habits",
    "Latency",
    "Limits",
    "Person",
    "Telegram",
    "Upload",
    "World",
]
