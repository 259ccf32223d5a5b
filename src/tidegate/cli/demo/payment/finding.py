"""The bot is an example, to be read and copied: it is no part of the package that shows it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from tidegate.errors import BadInputError
from tidegate.extras import extra

# An installed package carries a copy; in a checkout it is where everybody looks for it.
PLACES: Final = (Path(__file__).with_name("examples"), Path(__file__).parents[5] / "examples")


def find_bot(name: str = "payment_bot.bot") -> ModuleType:
    """Imports it. Raises MissingExtraError without aiogram."""
    package = name.partition(".")[0]
    place = next((place for place in PLACES if (place / package / "__init__.py").is_file()), None)
    if place is None:
        raise BadInputError(
            f"the example {package} is not on this machine: run it from a checkout of Tidegate"
        )
    if str(place) not in sys.path:
        sys.path.append(str(place))
    with extra("aiogram", "aiogram"):
        return importlib.import_module(name)
