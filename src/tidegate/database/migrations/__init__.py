"""The migrations of the schema, run by Alembic without a configuration file.

A new one is a file in `versions/` and a line in REVISIONS; `schema.py` follows it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from tidegate.errors import StoreError
from tidegate.extras import extra

if TYPE_CHECKING:
    from sqlalchemy import Connection

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 10))  # the oldest first
NEWEST: Final = REVISIONS[-1]
VERSION_TABLE: Final = "tidegate_version"  # of its own: the bot may use Alembic for its own tables


class Revision(NamedTuple):
    """The state of a schema: `current` is None if there are no tables yet, `pending` what it lacks."""

    current: str | None
    pending: list[str]

    @classmethod
    def of(cls, current: str | None, name: str) -> Self:
        """Return the state of the database `name`. Raises StoreError if it is of a newer Tidegate."""
        if current is None:
            return cls(None, list(REVISIONS))
        if current not in REVISIONS:
            raise StoreError(
                f"{name} is of a newer Tidegate: its schema has the revision {current}, and this one knows up"
                f" to {NEWEST}. Install that version here"
            )
        return cls(current, list(REVISIONS[REVISIONS.index(current) + 1 :]))


def load_upgrade() -> "Callable[[Connection], None]":
    """Return the function that brings a schema up to date in the transaction that is open. Blocks."""
    with _quiet_alembic(), extra("alembic"):
        from alembic.config import Config  # noqa: PLC0415  (slow to import, and seldom needed)
        from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
        from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    scripts.get_heads()  # reads them all: no file is read on the event loop

    def steps(revision: Any, _context: object) -> Any:  # noqa: ANN401  (Alembic's own)
        return scripts._upgrade_revs("head", revision)  # noqa: SLF001  (as alembic.command.upgrade does)

    def upgrade(connection: "Connection") -> None:
        with _quiet_alembic(), EnvironmentContext(config, scripts, fn=steps) as environment:
            environment.configure(connection=connection, version_table=VERSION_TABLE)
            environment.run_migrations()

    return upgrade


@contextmanager
def _quiet_alembic() -> Iterator[None]:
    """Keep Alembic's ten lines at INFO out of the log of the bot, which may use Alembic itself later."""
    log = logging.getLogger("alembic")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
