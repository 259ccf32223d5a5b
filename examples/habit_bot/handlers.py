"""Handlers of what users write and press. They tell Tidegate whom to remind, when, and with which text."""

import datetime as dt
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from zoneinfo import ZoneInfo

from aiogram import F, Router
from aiogram.filters import Command, CommandObject, CommandStart
from aiogram.types import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message

from habit_bot.journal import Habit, Journal, User
from habit_bot.streaks import streak
from habit_bot.texts import Phrases
from tidegate import BadInputError, Tidegate

MOST_HABITS: Final = 20  # of a user
LONGEST_NAME: Final = 100
LATER: Final = dt.timedelta(minutes=30)
STREAK_DAYS: Final = dt.timedelta(days=730)  # longer streaks are not counted
WEEK_AT: Final = {"at": "18:00", "days": "sun"}
_DAY: Final = "(?:mon|tue|wed|thu|fri|sat|sun)"
_ADD: Final = re.compile(
    rf"(?P<time>\d\S*)\s+(?:(?P<days>{_DAY}(?:[,-]{_DAY})*|weekdays|weekend)\s+)?(?P<name>\S.*)",
    re.IGNORECASE | re.DOTALL,
)


class HabitHandlers:
    def __init__(self, gate: Tidegate, journal: Journal, phrases: Phrases) -> None:
        self._gate = gate
        self._journal = journal
        self._say = phrases

    async def greet(self, message: Message) -> None:
        await message.answer(self._say("greeting", _language(message), name=message.chat.full_name))

    async def set_zone(self, message: Message, command: CommandObject) -> None:
        zone, language = (command.args or "").strip(), _language(message)
        if not zone:
            await message.answer(self._say("zone_how", language))
            return
        user = User(message.chat.id, zone, language)
        try:  # this also checks the zone
            await self._gate.reminders.add(
                user.id, handler="week", zone=zone, key=f"week:{user.id}", **WEEK_AT
            )
        except BadInputError as error:
            await message.answer(self._say("bad", language, error=error))
            return
        await self._journal.save_user(user)
        for reminder in await self._gate.reminders.list(user_id=user.id):
            await self._gate.reminders.change(reminder.id, zone=zone)
        await message.answer(self._say("zone_set", language, zone=zone))

    async def add(self, message: Message, command: CommandObject) -> None:
        user = await self._known_user(message)
        if user is None:
            return
        asked = _ADD.fullmatch((command.args or "").strip())
        if asked is None or len(asked["name"]) > LONGEST_NAME:
            await message.answer(self._say("add_how", user.language))
            return
        if len(await self._journal.habits(user.id)) >= MOST_HABITS:
            await message.answer(self._say("too_many", user.language, most=MOST_HABITS))
            return
        habit = await self._journal.add_habit(user.id, asked["name"], asked["time"], asked["days"] or "")
        try:
            await self._remind(habit, user)
        except BadInputError as error:  # '25:00' is not a time
            await self._journal.remove_habit(habit)
            await message.answer(self._say("bad", user.language, error=error))
            return
        days = self._days(habit, user)
        await message.answer(self._say("added", user.language, name=habit.name, time=habit.time, days=days))

    async def show_habits(self, message: Message) -> None:
        user = await self._known_user(message)
        if user is not None:
            text, buttons = await self._habits_page(user)
            await message.answer(text, reply_markup=buttons)

    async def show_week(self, message: Message) -> None:
        user = await self._known_user(message)
        if user is not None:
            await message.answer(await self.week(user) or self._say("no_habits", user.language))

    async def stop(self, message: Message) -> None:
        await self._gate.reminders.forget(message.chat.id)
        await self._journal.forget(message.chat.id)
        await message.answer(self._say("stopped", _language(message)))

    async def explain(self, message: Message) -> None:
        await message.answer(self._say("lost", _language(message)))

    async def note_done(self, query: CallbackQuery) -> None:
        async def act(user: User, habit: Habit) -> None:
            # The day on which the question was asked, also if the button is pressed after midnight.
            asked = query.message.date if isinstance(query.message, Message) else self._now(user)
            await self._journal.note_done(habit, asked.astimezone(ZoneInfo(user.zone)).date())
            await _edit(query, self._line("done", user, habit, streak=await self._streak(user, habit)))

        await self._press(query, act)

    async def ask_later(self, query: CallbackQuery) -> None:
        async def act(user: User, habit: Habit) -> None:
            await self._gate.reminders.snooze(_key(habit), LATER)
            await _edit(query, self._line("later", user, habit))

        await self._press(query, act)

    async def pause(self, query: CallbackQuery) -> None:
        async def act(user: User, habit: Habit) -> None:
            await self._gate.reminders.pause(_key(habit))
            await self._edit_habits(query, user)

        await self._press(query, act)

    async def resume(self, query: CallbackQuery) -> None:
        async def act(user: User, habit: Habit) -> None:
            await self._remind(habit, user)  # what is added again goes on
            await self._edit_habits(query, user)

        await self._press(query, act)

    async def remove(self, query: CallbackQuery) -> None:
        async def act(user: User, habit: Habit) -> None:
            await self._gate.reminders.remove(_key(habit))
            await self._journal.remove_habit(habit)
            await self._edit_habits(query, user)

        await self._press(query, act)

    async def week(self, user: User) -> str | None:
        """Return the statistics of the last seven days; None without habits."""
        lines = await self._journal.week(user.id, self._now(user).date())
        if not lines:
            return None
        shown = (self._say("week_line", user.language, **line._asdict()) for line in lines)
        return "\n".join([self._say("week", user.language), *shown])

    async def _remind(self, habit: Habit, user: User) -> None:
        """Add the reminder of a habit, or let it go on. Raises BadInputError for a bad time."""
        buttons = _keyboard(
            [
                (self._say("done_button", user.language), f"done:{habit.id}"),
                (self._say("later_button", user.language), f"later:{habit.id}"),
            ]
        )
        added = await self._gate.reminders.add(
            user.id,
            text=self._line("reminder", user, habit),
            reply_markup=buttons.model_dump(exclude_none=True),
            zone=user.zone,
            key=_key(habit),
            **({"spread": habit.time} if "-" in habit.time else {"at": habit.time}),
            **({"days": habit.days} if habit.days else {"every": "day"}),
        )
        weekdays = frozenset(getattr(added.schedule, "days", range(7)))
        if weekdays != habit.weekdays:
            await self._journal.save_weekdays(habit._replace(weekdays=weekdays))

    async def _habits_page(self, user: User) -> tuple[str, InlineKeyboardMarkup | None]:
        habits = await self._journal.habits(user.id)
        if not habits:
            return self._say("no_habits", user.language), None
        today = self._now(user).date()
        done = await self._journal.done_days(user.id, today - STREAK_DAYS)
        reminders = await self._gate.reminders.list(user_id=user.id)
        active = {reminder.key for reminder in reminders if not reminder.paused}
        lines, rows = [self._say("habits", user.language)], []
        for number, habit in enumerate(habits, 1):
            runs = _key(habit) in active
            count = streak(done.get(habit.id, set()), habit.weekdays, today)
            paused = "" if runs else self._say("paused", user.language)
            lines.append(self._line("habit", user, habit, number=number, streak=count, paused=paused))
            change = "pause" if runs else "resume"
            rows.append(
                [
                    (self._say(f"{verb}_button", user.language, number=number), f"{verb}:{habit.id}")
                    for verb in (change, "remove")
                ]
            )
        return "\n".join(lines), _keyboard(*rows)

    async def _edit_habits(self, query: CallbackQuery, user: User) -> None:
        await _edit(query, *await self._habits_page(user))

    async def _press(self, query: CallbackQuery, act: Callable[[User, Habit], Awaitable[None]]) -> None:
        """Answer a button, and do what it says with the habit that it names."""
        number = (query.data or "").partition(":")[2]
        user = await self._journal.user(query.from_user.id)
        habit = await self._journal.habit(user.id, int(number)) if user and number.isdecimal() else None
        if user is None or habit is None:
            await query.answer(self._say("gone", query.from_user.language_code))
            return
        await query.answer()
        await act(user, habit)

    async def _known_user(self, message: Message) -> User | None:
        """Return the user, or ask for the time zone."""
        user = await self._journal.user(message.chat.id)
        if user is None:
            await message.answer(self._say("zone_first", _language(message)))
        return user

    async def _streak(self, user: User, habit: Habit) -> int:
        today = self._now(user).date()
        done = await self._journal.done_days(user.id, today - STREAK_DAYS)
        return streak(done.get(habit.id, set()), habit.weekdays, today)

    def _line(self, text: str, user: User, habit: Habit, **values: object) -> str:
        days = self._days(habit, user)
        return self._say(text, user.language, name=habit.name, time=habit.time, days=days, **values)

    def _days(self, habit: Habit, user: User) -> str:
        return self._say("on_days", user.language, days=habit.days) if habit.days else ""

    def _now(self, user: User) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._gate.clock.now(), ZoneInfo(user.zone))

    def router(self) -> Router:
        here = Router(name="habits")
        here.message.filter(F.chat.type == "private")
        here.message.register(self.greet, CommandStart())
        here.message.register(self.set_zone, Command("zone"))
        here.message.register(self.add, Command("add"))
        here.message.register(self.show_habits, Command("habits"))
        here.message.register(self.show_week, Command("week"))
        here.message.register(self.stop, Command("stop"))
        here.message.register(self.explain)
        buttons: dict[str, Callable[..., Any]] = {
            "done:": self.note_done,
            "later:": self.ask_later,
            "pause:": self.pause,
            "resume:": self.resume,
            "remove:": self.remove,
        }
        for data, handler in buttons.items():
            here.callback_query.register(handler, F.data.startswith(data))
        return here


async def _edit(query: CallbackQuery, text: str, buttons: InlineKeyboardMarkup | None = None) -> None:
    if isinstance(query.message, Message):
        await query.message.edit_text(text, reply_markup=buttons)


def _key(habit: Habit) -> str:
    return f"habit:{habit.id}"


def _keyboard(*rows: list[tuple[str, str]]) -> InlineKeyboardMarkup:
    return InlineKeyboardMarkup(
        inline_keyboard=[
            [InlineKeyboardButton(text=text, callback_data=data) for text, data in row] for row in rows
        ]
    )


def _language(message: Message) -> str | None:
    return None if message.from_user is None else message.from_user.language_code
