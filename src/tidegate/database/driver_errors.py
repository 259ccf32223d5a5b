"""Errors of database drivers as Tidegate's: what happened, to which database, and what to do.

Only the driver's own sentence is quoted, never a parameter or a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from tidegate.database.address import driver_text, file_of, public_name
from tidegate.errors import BadInputError, StoreAwayError, StoreError, StoreFullError, TidegateError

# What SQLite calls its errors, by how the name begins. Those of a lock pass: it is away until then.
_SQLITE_AWAY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_SQLITE_TEXTS: Final = {
    "SQLITE_FULL": "the disk that holds {path} is full: free some space",
    "SQLITE_READONLY": "{path} is read-only: let this user write it and its folder",
    "SQLITE_CANTOPEN": "{path} cannot be opened: let this user read and write it and its folder",
    "SQLITE_CORRUPT": "{path} is damaged: restore a copy of it",
    "SQLITE_NOTADB": "{path} is not a SQLite file: correct DATABASE_URL, or restore a copy of it",
}
# SQLSTATE classes and codes of PostgreSQL that pass by themselves: connection exceptions, transactions that
# collide, too many connections, shutdown, a statement that took too long, a standby that is read-only.
_POSTGRES_AWAY: Final = ("08", "40", "53300", "57", "55P03", "25006", "25P03")
_POSTGRES_TEXTS: Final = {
    "28": "{name} refuses the user or the password: correct them in the address",
    "3D": "there is no such database: {name}. Create it (createdb), or correct the address",
    "42501": "the user may not do this in {name}: grant it the right to create and use tables ({text})",
    "3F": "{name} has no schema to create tables in: create one, or set the user's search_path",
    "531": "the disk of {name} is full: free some space",
}


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raise StoreError in place of whatever a driver or SQLAlchemy raises; StoreAwayError if it may pass."""
    try:
        yield
    except TidegateError:
        raise
    except (DataError, OverflowError, UnicodeError):  # its text quotes the value
        limits = "numbers have 64 bits, and texts neither zero bytes nor halves of characters"
        raise BadInputError(f"{public_name(url)} cannot keep one of the values: {limits}") from None
    except (SQLAlchemyError, OSError) as error:
        raise _translate(error, url) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"asyncpg", "sqlite3", "aiosqlite"}:
            raise
        raise _translate(error, url) from error


def _translate(error: Exception, url: URL) -> StoreError:
    if isinstance(error, NoFreeConnectionError):
        advice = "raise DB_POOL_SIZE or DB_MAX_OVERFLOW, or ask less at once"
        return StoreAwayError(f"every connection to {public_name(url)} is in use: {advice}")
    cause = getattr(error, "orig", None) or error
    names = _codes(cause)
    if isinstance(cause, OSError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return _away(cause, url)
    for code in names:
        if code.startswith((*_SQLITE_AWAY, *_POSTGRES_AWAY)):
            return _away(cause, url)
        for beginning, sentence in {**_SQLITE_TEXTS, **_POSTGRES_TEXTS}.items():
            if code.startswith(beginning):
                text = sentence.format(
                    path=file_of(url) or "the database", name=public_name(url), text=driver_text(error, url)
                )
                full = beginning in {"SQLITE_FULL", "531"}
                return StoreFullError(text) if full else StoreError(text)
    return StoreError(f"{public_name(url)}: {driver_text(error, url)}")


def _codes(cause: BaseException | None) -> list[str]:
    """The codes of an error and of its causes: SQLAlchemy's adapters wrap the drivers' own."""
    found = []
    while cause is not None:
        found += [
            str(code) for name in ("sqlite_errorname", "sqlstate") if (code := getattr(cause, name, None))
        ]
        cause = cause.__cause__
    return found


def _away(cause: BaseException, url: URL) -> StoreAwayError:
    path = file_of(url)
    if path is not None:
        return StoreAwayError(f"another process keeps {path} locked: it is tried again")
    text = "no answer in time" if isinstance(cause, TimeoutError) else driver_text(cause, url)
    return StoreAwayError(
        f"{public_name(url)} cannot be reached: start it there, or correct its address ({text})"
    )
