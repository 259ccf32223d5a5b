"""A simulated Telegram whose limits really count: in this process, or over HTTP."""

from tidegate.sim.faults import ConnectionCut, Faults, Latency
from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.crowd import Crowd, Habits
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import SimulatedTelegram, TelegramAnswer
from tidegate.sim.telegram.world import World

Telegram = SimulatedTelegram  # the name before 1.0
__all__ = [
    "ConnectionCut",
    "Crowd",
    "Faults",
    "Habits",
    "Latency",
    "Limits",
    "Person",
    "SimulatedTelegram",
    "Telegram",
    "TelegramAnswer",
    "Upload",
    "World",
]
