"""`tidegate database`: which SQL database is used, and its migrations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.cli import loop, terminal
from tidegate.cli.options import AsJson, Store, command_group
from tidegate.cli.reminders.options import naming_the_database
from tidegate.cli.store import IN_MEMORY, store_name
from tidegate.database import make_database
from tidegate.database.migrations import NEWEST, Revision
from tidegate.errors import BadInputError
from tidegate.settings import Settings

if TYPE_CHECKING:  # an extra
    from tidegate.database.database import Database

app = command_group("Show and upgrade the SQL database, which holds reminders and jobs.")


@app.command(epilog="[b]Try it:[/b]  tidegate database status  ·  tidegate database status --json")
def status(*, store: Store = None, as_json: AsJson = False) -> None:
    """Show which database is used, and whether its tables are up to date. Changes nothing.

    It is that of DATABASE_URL, else a SQLite file beside the store.
    """
    database = database_beside(store)
    revision = loop.run(_look(database))
    advice = "tidegate database upgrade brings it up to date, as does the next process that uses it"
    are = "is" if len(revision.pending) == 1 else "are"
    line = f"{', '.join(revision.pending)} {are} pending: {advice}" if revision.pending else "up to date"
    _report(database, revision, f"{revision.current or 'no tables yet'}, {line}", {}, as_json=as_json)


@app.command(epilog="[b]Try it:[/b]  DATABASE_URL=postgresql://… tidegate database upgrade")
def upgrade(*, store: Store = None, as_json: AsJson = False) -> None:
    """Create the tables of the database, or bring them up to date, in one transaction.

    Every process that uses it does so by itself when it starts. This does it before that, for instance as a
    user that may create tables. Processes that do it at the same time wait for each other.
    """
    database = database_beside(store)
    before = loop.run(_upgrade(database))
    done = f"upgraded by {', '.join(before.pending)}" if before.pending else "was up to date"
    more = {"upgraded": before.pending}
    _report(database, Revision(NEWEST, []), f"{NEWEST}, {done}", more, as_json=as_json)


def database_beside(store: str | None) -> "Database":
    """Return the database of a command, not open yet. Raises BadInputError if there can be none."""
    settings, place = Settings.read(), store_name(store)
    if place == IN_MEMORY and settings.database_url is None:
        raise BadInputError(f"beside {IN_MEMORY} there is no database: set DATABASE_URL, or name a store")
    with naming_the_database():
        return make_database(place, settings)


async def _look(database: "Database") -> Revision:
    if not await database.exists():
        return Revision.of(None, database.name)
    await database.open(upgrade=False)
    try:
        return await database.revision()
    finally:
        await database.close()


async def _upgrade(database: "Database") -> Revision:
    before = await _look(database)
    await database.open()
    await database.close()
    return before


def _report(
    database: "Database", revision: Revision, schema: str, more: Mapping[str, object], *, as_json: bool
) -> None:
    found = {
        "database": database.name,
        "replica": database.replica_name,
        "revision": revision.current,
        "newest": NEWEST,
        "pending": revision.pending,
        **more,
    }
    replica = [f"replica   {database.replica_name}"] if database.replica_name else []
    lines = [f"database  {database.name}", *replica, f"schema    {schema}"]
    terminal.report(found, *lines, as_json=as_json)
