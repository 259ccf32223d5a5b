"""The flow that a person means: by module and name, or by file."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.flows.builder import FlowBuilder
from tidegate.flows.declaration import load_flow
from tidegate.flows.events import Event
from tidegate.flows.flow import Flow

FILES: Final = frozenset((".toml", ".json"))


def find_flow(where: str) -> Flow:
    """As it is declared, not checked. Raises BadInputError that says what is not there."""
    if Path(where).suffix.lower() in FILES:
        return _in_file(Path(where))
    module, colon, name = where.partition(":")
    if not colon or not module or not name:
        raise BadInputError(f"{where!r} names no flow: write MODULE:NAME, or a .toml or .json file")
    found = _in_module(_imported(module), name)
    if isinstance(found, FlowBuilder):
        return found.build_unchecked()
    if not isinstance(found, Flow):
        raise BadInputError(f"{where} is no flow but {type(found).__name__}: name a Flow or a FlowBuilder")
    return found


def _in_file(path: Path) -> Flow:
    """Its guards are functions, which no file has: whatever it calls is taken to be there."""
    flow = load_flow(path)
    used = {guard for state in flow.states for guard in state.guards()}
    return msgspec.structs.replace(flow, guards=dict.fromkeys(used, _granted))


def _granted(data: Mapping[str, Any], event: Event) -> bool:  # noqa: ARG001  (a guard)
    return True


def _imported(module: str) -> ModuleType:
    """From the current folder too, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInputError(
                f"there is no module {error.name} in {here} or among what is installed"
            ) from error
        raise BadInputError(f"{module} needs {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:  # whatever its code raises; a script may also end
        raise BadInputError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error


def _in_module(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            flows = [key for key, value in vars(module).items() if isinstance(value, Flow | FlowBuilder)]
            hint = f"its flows are {', '.join(flows)}" if flows else "it has no flows"
            raise BadInputError(f"{module.__name__} has no {name}: {hint}")
        found = getattr(found, part)
    return found
