"""A public example bot as its authors wrote it, but for one change: a gate is attached.

It is pointed at the simulator from outside: the token by its place, the address by the library's default.
"""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tidegate import Tidegate


class Change(NamedTuple):
    """What is changed in the text of an example to attach a gate; all of it."""

    pattern: str
    replacement: str


NOTHING = Change(r"\A", "")
POLLING = Change(
    r"await (\w+)\.start_polling\((\w+)\)",
    r"Tidegate(STORE).attach(\1, \2); await \1.start_polling(\2)",
)
RUN_POLLING = Change(r"(\w+)\.run_polling\((\w+)\)", r"Tidegate(STORE).attach(\1, \2); \1.run_polling(\2)")
WEBHOOK = Change(
    r"setup_application\(app, (\w+), bot=bot\)",
    r"Tidegate(STORE).attach(\1, bot); setup_application(app, \1, bot=bot)",
)
WITHOUT_DISPATCHER = Change(
    r"await bot\.send_message\(.*\)",
    r"async with Tidegate(STORE) as gate: gate.attach(None, bot); \g<0>",
)
LIMITER = Change(r'\.token\("?TOKEN"?\)', r"\g<0>.rate_limiter(Tidegate(STORE).ptb())")

ATTACHED_BUILDER = Change(r'Application\.builder\(\)\.token\("TOKEN"\)', r"Tidegate(STORE).attach(\g<0>)")


def load(path: Path, change: Change, token: str, store: Path, name: str = "public_example") -> ModuleType:
    """The example as a module. Under the name `__main__` it runs at once."""
    text, changes = re.subn(change.pattern, change.replacement, path.read_text())
    assert changes == 1, f"a gate is attached to {path.name} in one place, not in {changes}"
    module = ModuleType(name)
    vars(module).update(__file__=str(path), Tidegate=Tidegate, STORE=store)
    sys.modules[name] = module  # dataclasses look for it there
    exec(compile(text.replace('"TOKEN"', f'"{token}"'), path, "exec"), vars(module))  # noqa: S102  (its point)
    return module
