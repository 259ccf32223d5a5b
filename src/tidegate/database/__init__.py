"""SQL through SQLAlchemy: reminders, and audiences from a query."""

from tidegate.clock import Clock
from tidegate.extras import extra
from tidegate.reminders.port import ReminderStore
from tidegate.settings import Settings
from tidegate.stores.memory.reminders import MemoryReminders

__all__ = ["make_reminders"]


def make_reminders(store: str, settings: Settings, clock: Clock) -> ReminderStore:
    """Return the reminders beside the store with this name, not open yet.

    Those of `memory://` are in memory, unless DATABASE_URL is set. Raises MissingExtraError.
    """
    if store == "memory://" and settings.database_url is None:
        return MemoryReminders(clock)
    with extra("sql", "sqlalchemy"):
        from tidegate.database.database import Database  # noqa: PLC0415  (an extra)
        from tidegate.database.reminders import SqlReminders  # noqa: PLC0415

    return SqlReminders(Database.of(store, settings, clock), clock)
