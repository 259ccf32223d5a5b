"""The loader of the Lua scripts: each step of a stage runs in Redis as one atomic script."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from tidegate.pacing import learned

Constant = int | float | str | Sequence["Constant"] | Mapping[str, "Constant"]

_LUA: Final = files("tidegate.stores.redis") / "lua"
_PRELUDE: Final = "shared/prelude"
_STEP: Final = re.compile(r"^function Steps\.(\w+)", re.MULTILINE)

# The constants of `shared/learned.lua`.
LEARNED_CONSTANTS: Final = {
    "CUT": learned.CUT,
    "STRETCH": learned.STRETCH,
    "LOWEST": learned.LOWEST,
    "STEP_UP_AFTER": learned.STEP_UP_AFTER,
    "PROBE_AFTER": learned.PROBE_AFTER,
    "PROBE_AT_MOST": learned.PROBE_AT_MOST,
    "FORGET_AFTER": learned.FORGET_AFTER,
}


class Script(NamedTuple):
    source: str
    sha: str  # by which Redis knows it


def load_scripts(
    stage: str,
    keys: Sequence[str] = (),
    *,
    shared: Sequence[str] = (),
    constants: Mapping[str, Constant] | None = None,
) -> dict[str, Script]:
    """Return the scripts of a stage, by the names of its steps.

    The steps are in `lua/<stage>.lua` or in the files of `lua/<stage>/`: each function `Steps.<name>` is one,
    and a file without such functions is one as a whole. `keys` name the fixed keys in the order in which the
    scripts take them; `shared` are the files that all steps of the stage share, in the order in which Lua has
    to read them.
    """
    folder, beginning = _LUA / stage, assemble(keys, shared=shared, constants=constants)
    scripts = {}
    for file in folder.iterdir() if folder.is_dir() else [_LUA / f"{stage}.lua"]:
        if file.is_file():
            text = file.read_text()
            named = [(step, f"return Steps.{step}()") for step in _STEP.findall(text)]
            for step, call in named or [(file.name.removesuffix(".lua"), "")]:
                source = f"local STEP, Steps = '{step}', {{}}\n{beginning}\n{text}\n{call}"
                scripts[step] = Script(source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324  (Redis's choice)
    return scripts


def assemble(
    keys: Sequence[str] = (), *, shared: Sequence[str] = (), constants: Mapping[str, Constant] | None = None
) -> str:
    """Return what the scripts of a stage begin with: keys, constants, the prelude and the shared files."""
    named = ", ".join(f"{name} = KEYS[{place}]" for place, name in enumerate(keys, 1))
    header = f"local KEY, FIXED, CONSTANT = {{ {named} }}, {len(keys)}, {_literal(constants or {})}"
    return "\n".join([header, *((_LUA / f"{name}.lua").read_text() for name in (_PRELUDE, *shared))])


def _literal(value: Constant) -> str:
    """Return a constant as Lua writes it."""
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_literal(each)}" for name, each in value.items()) + " }"
    if isinstance(value, Sequence):
        return "{ " + ", ".join(map(_literal, value)) + " }"
    return repr(value)
