"""Imports a bot of `examples/`, which the demos run."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from tidegate.errors import BadInputError
from tidegate.extras import extra

# Beside this file in an installed package (tools/build_hook.py puts them there), else in the checkout.
EXAMPLE_FOLDERS: Final = (Path(__file__).with_name("examples"), Path(__file__).parents[4] / "examples")


def find_bot(name: str) -> ModuleType:
    """Import the example bot. Raises MissingExtraError without aiogram."""
    package = name.partition(".")[0]
    place = next((place for place in EXAMPLE_FOLDERS if (place / package / "__init__.py").is_file()), None)
    if place is None:
        raise BadInputError(
            f"the example {package} is not on this machine: run it from a checkout of Tidegate"
        )
    if str(place) not in sys.path:
        sys.path.append(str(place))
    with extra("aiogram"):
        return importlib.import_module(name)
