"""The bot's own tables, in the database of Tidegate: users, habits, and the days on which they were done."""

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from tidegate import Tidegate

tables: Final = MetaData()
_number: Final = BigInteger().with_variant(Integer, "sqlite")
users: Final = Table(
    "habit_users",
    tables,
    Column("user_id", BigInteger, primary_key=True),
    Column("zone", Text, nullable=False),
    Column("language", Text),
)
habits: Final = Table(
    "habits",
    tables,
    Column("id", _number, Identity(), primary_key=True),
    Column("user_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("reminder_time", Text, nullable=False),  # 09:00, or a window: 08:00-10:00
    Column("days", Text, nullable=False),  # as it was given: mon-fri; empty: every day
    Column("weekdays", Text, nullable=False),  # 01234 is Monday to Friday
    Index("ix_habits_user_time", "user_id", "reminder_time"),
)
logs: Final = Table(
    "habit_logs",
    tables,
    Column("habit_id", _number, ForeignKey("habits.id", ondelete="CASCADE"), primary_key=True),
    Column("log_date", Date, primary_key=True),  # of the user's zone: a habit is done once a day
    Column("user_id", BigInteger, nullable=False),
    Index("ix_habit_logs_user_date", "user_id", "log_date"),
)


class User(NamedTuple):
    id: int
    zone: str
    language: str | None


class Habit(NamedTuple):
    id: int
    user_id: int
    name: str
    time: str
    days: str
    weekdays: frozenset[int] = frozenset(range(7))


class WeekLine(NamedTuple):
    """A habit in the statistics of a week: on how many days it was done."""

    name: str
    done: int
    planned: int


class Journal:
    """Each method is one transaction. What a user asks for is read where it was written; `week` may lag."""

    def __init__(self, gate: Tidegate) -> None:
        self._gate = gate

    async def open(self) -> None:
        """Open the database of the gate, and create the tables that are missing."""
        await self._gate.database.open()
        async with self._gate.database.write() as transaction:
            await transaction.run(tables.create_all)

    async def user(self, user_id: int) -> User | None:
        query = select(users).where(users.c.user_id == user_id)
        async with self._gate.database.read(latest=True) as transaction:
            found = await transaction.rows(query)
        return User(*found[0].values()) if found else None

    async def save_user(self, user: User) -> None:
        values = {"user_id": user.id, "zone": user.zone, "language": user.language}
        async with self._gate.database.write() as transaction:
            known = update(users).where(users.c.user_id == user.id).values(values)
            if not (await transaction.execute(known)).rowcount:
                await transaction.execute(insert(users).values(values))

    async def forget(self, user_id: int) -> None:
        async with self._gate.database.write() as transaction:
            for table in (logs, habits, users):
                await transaction.execute(delete(table).where(table.c.user_id == user_id))

    async def add_habit(self, user_id: int, name: str, time: str, days: str) -> Habit:
        values = {
            "user_id": user_id,
            "name": name,
            "reminder_time": time,
            "days": days,
            "weekdays": "0123456",
        }
        async with self._gate.database.write() as transaction:
            number = await transaction.scalar(insert(habits).values(values).returning(habits.c.id))
        return Habit(number, user_id, name, time, days)

    async def save_weekdays(self, habit: Habit) -> None:
        weekdays = "".join(map(str, sorted(habit.weekdays)))
        async with self._gate.database.write() as transaction:
            await transaction.execute(update(habits).where(habits.c.id == habit.id).values(weekdays=weekdays))

    async def habits(self, user_id: int) -> list[Habit]:
        """Return the habits of a user, in the order of the day."""
        query = select(habits).where(habits.c.user_id == user_id)
        async with self._gate.database.read(latest=True) as transaction:
            found = await transaction.rows(query.order_by(habits.c.reminder_time, habits.c.id))
        return [_habit(row) for row in found]

    async def habit(self, user_id: int, number: int) -> Habit | None:
        """Return a habit of this user. The number comes from a button, which anybody may forge."""
        return next((one for one in await self.habits(user_id) if one.id == number), None)

    async def remove_habit(self, habit: Habit) -> None:
        async with self._gate.database.write() as transaction:
            await transaction.execute(delete(logs).where(logs.c.habit_id == habit.id))
            await transaction.execute(delete(habits).where(habits.c.id == habit.id))

    async def note_done(self, habit: Habit, date: dt.date) -> None:
        """Note that it was done on this date; a second press of the button changes nothing."""
        async with self._gate.database.write() as transaction:
            dialect = postgresql if transaction.dialect == "postgresql" else sqlite
            row = {"habit_id": habit.id, "log_date": date, "user_id": habit.user_id}
            await transaction.execute(dialect.insert(logs).values(row).on_conflict_do_nothing())

    async def done_days(self, user_id: int, since: dt.date) -> dict[int, set[dt.date]]:
        """Return the days on which each habit of a user was done, with one query for all of them."""
        query = select(logs.c.habit_id, logs.c.log_date)
        query = query.where(logs.c.user_id == user_id, logs.c.log_date >= since)
        async with self._gate.database.read(latest=True) as transaction:
            found = await transaction.rows(query)
        days: defaultdict[int, set[dt.date]] = defaultdict(set)
        for row in found:
            days[row["habit_id"]].add(row["log_date"])
        return days

    async def week(self, user_id: int, today: dt.date) -> Sequence[WeekLine]:
        """Return the last seven days of each habit: from the replica, if there is one."""
        since = today - dt.timedelta(days=6)
        done = (
            select(logs.c.habit_id, func.count().label("done"))
            .where(logs.c.user_id == user_id, logs.c.log_date.between(since, today))
            .group_by(logs.c.habit_id)
            .subquery()
        )
        query = (
            select(habits.c.name, func.coalesce(done.c.done, 0).label("done"), habits.c.weekdays)
            .select_from(habits.outerjoin(done, done.c.habit_id == habits.c.id))
            .where(habits.c.user_id == user_id)
            .order_by(habits.c.reminder_time, habits.c.id)
        )
        async with self._gate.database.read() as transaction:
            found = await transaction.rows(query)
        return [WeekLine(row["name"], row["done"], len(row["weekdays"])) for row in found]


def _habit(row: Any) -> Habit:  # noqa: ANN401  (a row of SQLAlchemy)
    return Habit(
        row["id"],
        row["user_id"],
        row["name"],
        row["reminder_time"],
        row["days"],
        frozenset(map(int, row["weekdays"])),
    )
