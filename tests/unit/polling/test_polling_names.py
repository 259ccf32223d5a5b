"""The names that `tidegate.polling` exports."""

import importlib
import pkgutil
from inspect import isclass, isfunction

import tidegate.polling


def test_each_name_is_what_it_says_also_when_every_module_was_imported() -> None:
    for module in pkgutil.walk_packages(tidegate.polling.__path__, "tidegate.polling."):
        importlib.import_module(module.name)

    for name in tidegate.polling.__all__:
        offered = getattr(tidegate.polling, name)
        assert isclass(offered) if name[0].isupper() else isfunction(offered), name
        assert offered.__name__ == name
