"""`tidegate flow`: check and draw a conversation before it runs."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import msgspec
import typer

from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, command_group
from tidegate.cli.terminal import printable
from tidegate.errors import BadInputError, MissingExtraError, TidegateError
from tidegate.flows.builder import FlowBuilder
from tidegate.flows.declaration import load_flow
from tidegate.flows.events import FlowEvent
from tidegate.flows.flow import Flow
from tidegate.flows.model import transitions_of

app = command_group("Check and draw conversations that are declared as flows.")

Where = Annotated[
    str,
    typer.Argument(
        metavar="FLOW",
        help="MODULE:NAME, imported from this folder, or a .toml or .json file.",
        show_default=False,
    ),
]
Svg = Annotated[
    str | None,
    typer.Option("--svg", metavar="FILE", help="Draw an SVG into this file; needs mmdc on the PATH."),
]

FLOW_FILES: Final = frozenset((".toml", ".json"))
RENDER_WITHIN: Final = 120  # seconds; mmdc starts a browser


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow check shop.flows:payment  ·  tidegate flow check payment.toml"
)
def check(where: Where, *, as_json: AsJson = False) -> None:
    """List every problem of a flow, state by state. Exits with 1 if there is one.

    Finds states without a way in or out, transitions to states that do not exist, ambiguous triggers, texts
    that a language lacks, and more. Guards that a file names are assumed to exist: they are functions.
    """
    flow = find_flow(where)
    problems = flow.validate()
    ways = sum(len(transitions_of(state)) for state in flow.states) + len(flow.commands)
    if problems:
        summary = f"flow {flow.name}: {amount(len(problems), 'problem')}"
    else:
        summary = f"flow {flow.name} is sound: {len(flow.states)} states, {ways} transitions"
    found = {
        "flow": flow.name,
        "passed": not problems,
        "states": len(flow.states),
        "ways": ways,
        "problems": [msgspec.structs.asdict(problem) for problem in problems],
    }
    terminal.report(found, *map(printable, [*problems, summary]), as_json=as_json)
    raise typer.Exit(1 if problems else 0)


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow diagram shop.flows:payment  ·  tidegate flow diagram payment.toml"
)
def diagram(where: Where, *, svg: Svg = None, as_json: AsJson = False) -> None:
    """Draw a flow as a Mermaid diagram, which GitHub, GitLab and many editors show.

    The flow is drawn as it is declared, even if it has problems.
    """
    flow = find_flow(where)
    picture = flow.diagram()
    if svg is not None:
        _render_svg(picture, svg)
    line = picture.rstrip("\n") if svg is None else f"drawn into {svg}"
    terminal.report({"flow": flow.name, "diagram": picture, "svg": svg}, line, as_json=as_json)


def find_flow(where: str) -> Flow:
    """Load a flow without checking it. Raises BadInputError that says what is missing."""
    if Path(where).suffix.lower() in FLOW_FILES:
        return _in_file(Path(where))
    module, colon, name = where.partition(":")
    if not colon or not module or not name:
        raise BadInputError(f"{where!r} names no flow: write MODULE:NAME, or a .toml or .json file")
    found = _in_module(_imported(module), name)
    if isinstance(found, FlowBuilder):
        return found.build_unchecked()
    if not isinstance(found, Flow):
        raise BadInputError(f"{where} is not a flow but {type(found).__name__}: name a Flow or a FlowBuilder")
    return found


def _in_file(path: Path) -> Flow:
    """Load a declaration. A file cannot hold its guards, which are functions: they are assumed to exist."""
    flow = load_flow(path)
    used = {guard for state in flow.states for guard in state.guards()}
    return msgspec.structs.replace(flow, guards=dict.fromkeys(used, _granted))


def _granted(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard)
    return True


def _imported(module: str) -> ModuleType:
    """Import a module, from the current folder too, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInputError(
                f"there is no module {error.name} in {here} or among the installed packages"
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


def _render_svg(picture: str, svg: str) -> None:
    renderer = shutil.which("mmdc")
    if renderer is None:
        raise MissingExtraError(
            "there is no mmdc on the PATH to draw an SVG with: install @mermaid-js/mermaid-cli,"
            " or leave out --svg and paste the diagram into any Mermaid viewer, such as mermaid.live"
        )
    command = [renderer, "--quiet", "--input", "-", "--output", svg, "--outputFormat", "svg"]
    try:
        subprocess.run(  # noqa: S603  (the renderer that the PATH names, without a shell)
            command,
            input=picture,
            text=True,
            encoding="utf-8",
            capture_output=True,
            check=True,
            timeout=RENDER_WITHIN,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "nothing").strip().splitlines()
        raise TidegateError(f"mmdc could not draw {svg}: it said {said[0] if said else 'nothing'}") from error
    except subprocess.TimeoutExpired as error:
        raise TidegateError(
            f"mmdc did not draw {svg} within {RENDER_WITHIN} s: draw the text elsewhere"
        ) from error
