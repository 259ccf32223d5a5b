"""Public names of a package that are imported on first use, so that the command line starts fast."""

import importlib
from collections.abc import Callable, Mapping, Sequence

from tidegate.extras import missing_extra


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose names live in these modules of it.

    A name that needs a library of an extra raises MissingExtraError without it.
    """
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            raise (missing_extra(error) or error) from None
        return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{home}.{name}")

    return get
