"""`tidegate flow`: check, draw and play a conversation before it runs."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from tidegate.cli import terminal
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, command_group
from tidegate.cli.terminal import printable
from tidegate.cli.user_module import import_user_module
from tidegate.errors import BadInputError
from tidegate.flows.builder import FlowBuilder
from tidegate.flows.declaration import load_flow
from tidegate.flows.drawing import draw_svg
from tidegate.flows.events import FlowEvent
from tidegate.flows.flow import Flow
from tidegate.flows.model import transitions_of

if TYPE_CHECKING:
    from tidegate.cli.flow_preview import FlowPreview, Played
    from tidegate.sim.virtual_time import VirtualClock

app = command_group("Check, draw and play conversations that are declared as flows.")

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
    typer.Option("--svg", metavar="FILE", help="Draw an SVG picture into this file.", show_default=False),
]

Script = Annotated[
    str | None,
    typer.Option(
        "--script",
        metavar="FILE",
        help="Play these lines, and exit with 1 at the first that fails; - reads from stdin.",
        show_default=False,
    ),
]
Language = Annotated[str, typer.Option("--language", metavar="CODE", help="Of the user's app: de, pt-br.")]
FirstName = Annotated[str, typer.Option("--name", metavar="TEXT", help="The user's first name.")]

FLOW_FILES: Final = frozenset((".toml", ".json"))


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
    states = flow.states if problems else flow.flat.states
    ways = sum(len(transitions_of(state)) for state in states) + len(flow.commands)
    if problems:
        summary = f"flow {flow.name}: {amount(len(problems), 'problem')}"
    else:
        summary = f"flow {flow.name} is sound: {len(states)} states, {ways} transitions"
    found = {
        "flow": flow.name,
        "passed": not problems,
        "states": len(states),
        "ways": ways,
        "problems": [msgspec.structs.asdict(problem) for problem in problems],
    }
    terminal.report(found, *map(printable, [*problems, summary]), as_json=as_json)
    raise typer.Exit(1 if problems else 0)


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow diagram shop.flows:payment"
    "  ·  tidegate flow diagram payment.toml --svg payment.svg"
)
def diagram(where: Where, *, svg: Svg = None, as_json: AsJson = False) -> None:
    """Draw a flow as a Mermaid diagram, which GitHub, GitLab and many editors show, or as a picture.

    The flow is drawn as it is declared, even if it has problems.
    """
    flow = find_flow(where)
    picture = flow.diagram()
    if svg is not None:
        _write(Path(svg), draw_svg(flow))
    line = picture.rstrip("\n") if svg is None else f"drawn into {svg}"
    terminal.report({"flow": flow.name, "diagram": picture, "svg": svg}, line, as_json=as_json)


@app.command(
    epilog="[b]Try it:[/b]  tidegate flow preview shop.flows:payment"
    "  ·  tidegate flow preview payment.toml --script order.txt --json"
)
def preview(
    where: Where,
    *,
    script: Script = None,
    language: Language = "en",
    name: FirstName = "Ann",
    as_json: AsJson = False,
) -> None:
    """Play a flow here, as its user, against the simulated Telegram: no token, no bot, no waiting.

    Write what the user writes; the text or the number of a button presses it. Work and polling are yours to
    decide: :done {"order_id": "7"}, :failed, :met, :gone; :signal NAME, :wait 15m, :photo, :contact,
    :location and :state do what they say. In a script "< TEXT" expects a message, and # begins a comment.
    """
    from tidegate.cli.flow_preview import FlowPreview  # noqa: PLC0415  (slow to import: `--help` does without)
    from tidegate.sim import virtual_time  # noqa: PLC0415

    flow = find_flow(where)
    flow.check()
    is_script = script is not None or as_json or not sys.stdin.isatty()
    lines: Iterable[str] = _script_lines(script) if is_script else _typed_lines()

    async def main(clock: "VirtualClock") -> "list[Played]":
        async with FlowPreview(flow, clock, name=name, language=language) as played:
            return await _play(played, lines, is_script=is_script, as_json=as_json)

    with _quiet_log():
        steps = virtual_time.run(main)
    passed = not (is_script and any(step.problem for step in steps))
    if as_json:
        found = {"flow": flow.name, "passed": passed, "steps": [msgspec.to_builtins(step) for step in steps]}
        terminal.put_json(found)
    raise typer.Exit(0 if passed else 1)


async def _play(
    preview: "FlowPreview", lines: Iterable[str], *, is_script: bool, as_json: bool
) -> "list[Played]":
    steps: list[Played] = []
    for line in lines:
        steps.append(await preview.play(line))
        if not as_json:
            for shown in _shown(steps[-1], preview.labels, echo=is_script):
                terminal.put_line(printable(shown))
        if is_script and steps[-1].problem is not None:
            break
    return steps


def _shown(step: "Played", labels: list[str], *, echo: bool) -> Iterator[str]:
    if echo:
        yield f"> {step.line}"
    for heard in sorted(step.heard, key=lambda one: one.how != "deleted"):  # buttons stand below their text
        marks = {
            "new": "",
            "edited": "(changed) ",
            "answer": "(notice) ",
            "deleted": "(a message is deleted)",
        }
        files = "".join(f"[{file}] " for file in heard.files)
        yield f"  {marks[heard.how]}{files}{heard.text}".replace("\n", "\n  ")
        yield from (f"  [link] {address}" for address in heard.links)
    if labels and any(heard.buttons or heard.keys for heard in step.heard):
        yield "  " + "  ".join(f"[{number}] {label}" for number, label in enumerate(labels, 1))
    if step.note is not None:
        yield f"  {step.note}"
    if step.problem is not None:
        yield f"  ! {step.problem}"
    for work in step.waits_for:
        yield f"  … {work} has begun: end it with :done JSON, or :failed"


def _script_lines(script: str | None) -> list[str]:
    try:
        text = sys.stdin.read() if script in {None, "-"} else Path(str(script)).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"cannot read {script}: {error}") from error
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _typed_lines() -> Iterator[str]:
    """Until the end of the input. Reading blocks the loop, in which no time passes meanwhile."""
    terminal.put_line("Write as the user of the bot. Ctrl-D ends it; tidegate flow preview --help says more.")
    while True:
        sys.stdout.write("> ")
        sys.stdout.flush()
        if not (line := sys.stdin.readline()):
            sys.stdout.write("\n")
            return
        if line.strip():
            yield line.strip()


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Work that fails as the user says is no news."""
    log = logging.getLogger("tidegate.flows")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def find_flow(where: str) -> Flow:
    """Load a flow without checking it. Raises BadInputError that says what is missing."""
    if Path(where).suffix.lower() in FLOW_FILES:
        return _in_file(Path(where))
    module, colon, name = where.partition(":")
    if not colon or not module or not name:
        raise BadInputError(f"{where!r} names no flow: write MODULE:NAME, or a .toml or .json file")
    found = _in_module(import_user_module(module), name)
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


def _in_module(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            flows = [key for key, value in vars(module).items() if isinstance(value, Flow | FlowBuilder)]
            hint = f"its flows are {', '.join(flows)}" if flows else "it has no flows"
            raise BadInputError(f"{module.__name__} has no {name}: {hint}")
        found = getattr(found, part)
    return found
