"""A day of a habit bot with many users: reminders in their time zones, buttons pressed, answers, measured."""

from tidegate.sim.habits.scenario import HabitScenario
from tidegate.sim.habits.simulation import HabitReport, simulate_habits

__all__ = ["HabitReport", "HabitScenario", "simulate_habits"]
