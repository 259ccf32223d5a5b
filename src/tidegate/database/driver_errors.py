"""Errors of database drivers as Tidegate's: what happened, to which database, and what to do.

Only the driver's own sentence is quoted, never a parameter or a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from tidegate.database.address import driver_text, file_of, public_name
from tidegate.errors import BadInputError, StoreAwayError, StoreError, StoreFullError, TidegateError

DRIVERS: Final = frozenset({"aiosqlite", "asyncpg", "sqlite3"})  # the modules of their own errors
_UNREACHABLE: Final = "{name} cannot be reached: start it there, or correct its address ({text})"
_BAD_VALUE: Final = (
    "{name} cannot keep one of the values: numbers have 64 bits, texts neither zero bytes nor half characters"
)
# By how the code of an error begins: SQLSTATE of PostgreSQL, or SQLite's own name. The first that fits.
_TEXTS: Final[dict[str, tuple[type[TidegateError], str]]] = {
    "22": (BadInputError, _BAD_VALUE),
    "57014": (StoreAwayError, "{name} took longer than TIDEGATE_STATEMENT_TIMEOUT, and was stopped"),
    "25006": (StoreAwayError, "{name} is read-only now: it may be a standby; write the primary's address"),
    "40": (StoreAwayError, "{name}: two transactions were in each other's way; try again ({text})"),
    "55P03": (StoreAwayError, "{name}: another process holds a lock; try again ({text})"),
    "08": (StoreAwayError, _UNREACHABLE),
    "53300": (StoreAwayError, "{name} has no free connection: lower DB_POOL_SIZE, or use PgBouncer ({text})"),
    "57": (StoreAwayError, _UNREACHABLE),
    "53100": (StoreFullError, "the disk of {name} is full: free some space"),
    "28": (StoreError, "{name} refuses the user or the password: correct them in its address"),
    "3D": (StoreError, "there is no database {name}: create it (createdb), or correct its address"),
    "3F": (StoreError, "{name} has no schema for tables: create one, or set the search_path of the user"),
    "42501": (StoreError, "the user may not do this in {name}: grant the right to create tables ({text})"),
    "SQLITE_BUSY": (StoreAwayError, "another process keeps {path} locked"),
    "SQLITE_LOCKED": (StoreAwayError, "another process keeps {path} locked"),
    "SQLITE_FULL": (StoreFullError, "the disk that holds {path} is full: free some space"),
    "SQLITE_READONLY": (StoreError, "{path} is read-only: let this user write it and its folder"),
    "SQLITE_CANTOPEN": (
        StoreError,
        "{path} cannot be opened: let this user read and write it and its folder",
    ),
    "SQLITE_CORRUPT": (StoreError, "{path} is damaged: restore a copy of it"),
    "SQLITE_NOTADB": (StoreError, "{path} is not a SQLite file: name another one, or restore a copy of it"),
    "SQLITE_IOERR": (StoreError, "{path} cannot be read or written: look at the disk ({text})"),
}


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raise StoreError in place of what a driver or SQLAlchemy raises; StoreAwayError if that may pass."""
    try:
        yield
    except TidegateError:
        raise
    except (OverflowError, UnicodeError):  # of SQLite
        raise BadInputError(_BAD_VALUE.format(name=public_name(url))) from None
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if not isinstance(error, SQLAlchemyError | OSError) and module not in DRIVERS:
            raise
        told = _translate(error, url)
        # PostgreSQL's text about a value quotes it.
        raise told from (None if isinstance(told, BadInputError) else error)


def _translate(error: Exception, url: URL) -> TidegateError:
    name, text = public_name(url), driver_text(error, url)
    if isinstance(error, NoFreeConnectionError):
        advice = "raise DB_POOL_SIZE or DB_MAX_OVERFLOW, or ask less at once"
        return StoreAwayError(f"every connection to {name} is in use: {advice}")
    cause = getattr(error, "orig", None) or error
    for code in _codes(cause):
        for beginning, (kind, sentence) in _TEXTS.items():
            if code.startswith(beginning):
                return kind(sentence.format(name=name, path=file_of(url) or name, text=text))
    is_broken = isinstance(error, DBAPIError) and error.connection_invalidated
    if isinstance(error, OSError | PendingRollbackError) or isinstance(cause, OSError) or is_broken:
        text = "no answer in time" if isinstance(cause, TimeoutError) else text
        return StoreAwayError(_UNREACHABLE.format(name=name, text=text))
    return StoreError(f"{name}: {text}")


def _codes(cause: BaseException | None) -> Iterator[str]:
    """The codes of an error and of its causes: SQLAlchemy wraps the drivers' own."""
    while cause is not None:
        for name in ("sqlite_errorname", "sqlstate"):
            if code := getattr(cause, name, None):
                yield str(code)
        cause = cause.__cause__
