"""The Lua scripts: each step of a stage is one file of `lua/`, which runs as one atomic step in Redis."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from tidegate.pacing import learned

Constant = int | float | str | Sequence["Constant"] | Mapping[str, "Constant"]

_LUA: Final = files("tidegate.stores.redis") / "lua"
_PRELUDE: Final = "shared/prelude"

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
    """Return the scripts of a stage by the names of their files in `lua/<stage>/`.

    `keys` name the fixed keys in the order in which the scripts take them; `shared` are the files that every
    step of the stage begins with, in the order in which Lua has to read them.
    """
    beginning = assemble(keys, shared=shared, constants=constants)
    scripts = {}
    for file in (_LUA / stage).iterdir():
        step, _, suffix = file.name.rpartition(".")
        if suffix == "lua":
            source = f"local STEP = {_literal(step)}\n{beginning}\n{file.read_text()}"
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
