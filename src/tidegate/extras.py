"""Optional libraries: an import that fails says how to install them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import MissingExtraError


@contextmanager
def extra(name: str, library: str, package: str | None = None) -> Iterator[None]:
    """Around an import of `library`, which comes in `package`: if it is missing, says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        text = f'{package or library} is not installed: pip install "tidegate[{name}]"'
        raise MissingExtraError(text, name=library) from None
