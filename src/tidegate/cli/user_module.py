"""Importing a module of the user from the current folder."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from tidegate.errors import BadInputError
from tidegate.failure import describe_error


def import_user_module(name: str) -> ModuleType:
    """Import a module, from the current folder too, as `python -m` does. Raises BadInputError."""
    if name.endswith(".py"):
        meant = ".".join(Path(name.removesuffix(".py")).parts)
        raise BadInputError(f"{name} is a file: write its module, {meant}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise BadInputError(
                f"there is no module {error.name} in {here} or among the installed packages"
            ) from error
        raise BadInputError(f"{name} needs {error.name}, which is not installed") from error
    except SyntaxError as error:  # its text names the place
        raise BadInputError(f"{name} cannot be imported: SyntaxError: {error}") from error
    except (Exception, SystemExit) as error:  # whatever its code raises; a script may also end
        raise BadInputError(f"{name} cannot be imported: {describe_error(error)}") from error
