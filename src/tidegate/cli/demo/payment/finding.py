"""The bot is an example, to be read and copied: it is no part of the package that shows it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from tidegate.errors import BadInputError
from tidegate.extras import extra

# In a checkout, and in an installed package, which carries a copy.
PLACES: Final = (Path(__file__).parents[5] / "examples", Path(__file__).with_name("examples"))


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
