"""A Telegram whose limits really count: in this process, or over HTTP."""

from tidegate.sim.faults import Faults, Latency
from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import SimulatedTelegram, TelegramAnswer, TelegramConnectionCut
from tidegate.sim.telegram.world import World

__all__ = [
    "Crowd",
    "Faults",
    "Habits",
    "Latency",
    "Limits",
    "Person",
    "SimulatedTelegram",
    "TelegramAnswer",
    "TelegramConnectionCut",
    "Upload",
    "World",
]
