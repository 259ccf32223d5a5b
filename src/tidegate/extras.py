"""Optional libraries: an import that fails says how to install them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidegate.errors import MissingExtraError

# The extra that brings each library, and the name of its package.
EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "aiogram": ("aiogram", "aiogram"),
    "aiohappyeyeballs": ("service", "aiohappyeyeballs"),
    "aiosqlite": ("sql", "aiosqlite"),
    "alembic": ("sql", "alembic"),
    "asyncpg": ("sql", "asyncpg"),
    "celery": ("celery", "celery"),
    "fastapi": ("service", "fastapi"),
    "httptools": ("service", "httptools"),
    "jinja2": ("service", "jinja2"),
    "prometheus_client": ("service", "prometheus-client"),
    "redis": ("redis", "redis"),
    "sentry_sdk": ("sentry", "sentry-sdk"),
    "sqlalchemy": ("sql", "sqlalchemy"),
    "starlette": ("service", "starlette"),
    "telegram": ("ptb", "python-telegram-bot"),
    "uvicorn": ("service", "uvicorn"),
}


@contextmanager
def extra(library: str) -> Iterator[None]:
    """Around an import of a library of an extra: if it is missing, says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None or missing.name != library:
            raise
        raise missing from None


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error that says how to get the library that is missing; None if no extra brings it."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    name, package = EXTRAS[library]
    return MissingExtraError(f'{package} is not installed: pip install "tidegate[{name}]"', name=library)
