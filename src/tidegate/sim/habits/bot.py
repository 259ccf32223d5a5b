"""A habit bot on a gate, without a bot library: it adds reminders, and answers what users press and write."""

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from tidegate.errors import TidegateError
from tidegate.gate import Tidegate
from tidegate.model import Message
from tidegate.reminders.occurrences import time_zone
from tidegate.sim.habits.scenario import Habit
from tidegate.tasks import BackgroundTasks

POLL_SECONDS: Final = 10
SNOOZE: Final = dt.timedelta(minutes=30)
PAUSE_AFTER_ERROR: Final = 1.0  # seconds
STATS: Final = "/stats"


class HabitBot:
    """Its log is in memory: for each habit, the last day on which it was done, and how often in all."""

    def __init__(self, gate: Tidegate, habits: Sequence[Habit]) -> None:
        self._gate = gate
        self._habits = habits
        self._log: dict[int, tuple[dt.date, int]] = {}
        self._tasks = BackgroundTasks()
        self.dead_otherwise = 0  # messages that died, but not because the user has blocked the bot
        gate.on_dead(self._on_dead)

    async def add_reminders(self, habits: Iterable[Habit]) -> list[float]:
        """Add a reminder of each habit; return when they are due first."""
        added = await self._gate.reminders.add_many(habit.reminder() for habit in habits)
        return [one.next_at for one in added if one.next_at is not None]

    async def answer(self) -> None:
        """Answer everybody, each in a task of its own, until cancelled."""
        offset = 0
        try:
            while True:
                try:
                    updates = await self._gate.call("getUpdates", {"offset": offset, "timeout": POLL_SECONDS})
                except TidegateError:  # an answer was lost: it is asked for again
                    await self._gate.clock.sleep(PAUSE_AFTER_ERROR)
                    continue
                for update in updates:
                    offset = update["update_id"] + 1
                    self._tasks.start(self._handle(update), f"update {offset}")
        finally:
            await self._tasks.stop()

    async def _handle(self, update: dict[str, Any]) -> None:
        query = update.get("callback_query")
        if query is not None:
            verb, _, number = query["data"].partition(":")
            habit = self._habits[int(number)]
            await (self._note_done(habit) if verb == "done" else self._snooze(habit))
            with suppress(TidegateError):  # the button shows a spinner for longer, that is all
                await self._gate.call("answerCallbackQuery", {"callback_query_id": query["id"]})
        elif (message := update.get("message")) is not None and message.get("text") == STATS:
            user = message["chat"]["id"]
            text = f"Habits of all users that were done lately: {len(self._log)}"
            with suppress(TidegateError):  # the user has blocked the bot
                await self._gate.send_or_queue(chat_id=user, text=text, priority="high")

    async def _note_done(self, habit: Habit) -> None:
        today = dt.datetime.fromtimestamp(self._gate.clock.now(), time_zone(habit.zone)).date()
        last, times = self._log.get(habit.number, (None, habit.times))
        if last == today:
            return
        self._log[habit.number] = today, times + 1
        # By the number at the end of a text, the simulator finds what comes twice or out of order.
        text = f"{habit.name}: well done! Times in all #{habit.number}:{times + 1}"
        await self._gate.send(chat_id=habit.user, text=text, priority="high")

    async def _snooze(self, habit: Habit) -> None:
        await self._gate.reminders.snooze(f"habit:{habit.number}", SNOOZE)

    async def _on_dead(self, message: Message, reason: str) -> None:
        """Remove the reminders of a user who has blocked the bot."""
        if reason != "blocked" or not isinstance(message.chat_id, int):
            self.dead_otherwise += 1
            return
        theirs = await self._gate.reminders.list(user_id=message.chat_id)
        await self._gate.reminders.remove(*(one.id for one in theirs))
