"""How many planted bugs the tests notice: mutation testing of modules that decide without input or output.

`python benchmarks/mutants.py [module …]`, or `make mutants`. mutmut changes one operator, literal or call of
a module at a time; a mutant is killed if a test of the module's own set fails or does not end. Each module is
mutated alone, so that the others run at full speed, and meets only the tests that call the changed function.
When the minutes are over, the rest is counted as not tried. `--show` prints the mutants that survived.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
COPIED: Final = ("src", "tests", "examples", "pyproject.toml")
LINES: Final = ("contract/test_lines.py", "contract/test_turns.py")
# The tests that a module's mutants meet. The smallest modules first: what is left over is the longest.
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "outbox/effect_keys": ("unit/test_effects.py",),
    "pacing/bucket": ("unit/pacing/test_bucket.py",),
    "pacing/rules": ("unit/pacing/test_rules.py",),
    "pacing/window": ("unit/pacing/test_window.py",),
    "pacing/learned": ("unit/pacing/test_learned.py",),
    "polling/watermark": ("unit/polling/test_delta_watermark.py", "unit/polling/test_row_versions.py"),
    "reminders/firing": ("unit/reminders/test_firing.py",),
    "reminders/occurrences": ("unit/reminders/test_occurrences.py",),
    "reminders/spread": ("unit/reminders/test_spread.py",),
    "inbound/inbox_lanes": ("unit/inbound/test_inbox_lanes.py",),
    "outbox/transitions": ("unit/outbox/test_transitions.py", "contract/test_outcomes.py"),
    "outbox/flood_control": ("unit/outbox/test_flood_control.py",),
    "outbox/shares": ("unit/outbox/test_shares.py", *LINES),
    "delivery/outcome_policy": ("unit/delivery/test_outcome_policy.py",),
    "outbox/admission": ("unit/outbox/test_admission.py", "unit/outbox/test_plain_values.py"),
    "flows/graph": ("unit/flows/test_flow_validation.py",),
    "flows/machine": ("unit/flows/test_flow_machine.py", "unit/flows/test_flow_properties.py"),
    "flows/validation": ("unit/flows/test_flow_validation.py",),
    "outbox/lanes": (*LINES, "contract/test_outcomes.py", "unit/outbox/test_memory_shrinks.py"),
    "outbox/schedule": (*LINES, "contract/test_outcomes.py", "unit/outbox/test_memory_shrinks.py"),
}
# Every store keeps the contract; the one in memory is the thinnest around these modules. The others are slow.
LEFT_OUT: Final = ("redis", "sqlite", "million", "far_deadline", "20_000")
KILLED: Final = frozenset((1, 3, 24, 36, 152, 255, -24))  # exit codes: a test failed, or did not end
CONFIG: Final = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = [{module}]
also_copy = ["examples"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "--timeout", "30", "-k", {left_out}]
pytest_add_cli_args_test_selection = {tests}
do_not_mutate_patterns = ['raise \\w+\\(', 'log\\.\\w+\\(']  # words for people
timeout_multiplier = 3.0
timeout_constant = 5.0
track_dependencies = false
use_git_change_detection = false
"""


class Score(NamedTuple):
    """Of one module. `untried` ones were left when the time was over."""

    module: str
    killed: int
    survivors: list[str]
    untried: int
    seconds: float

    @property
    def share(self) -> str:
        tried = self.killed + len(self.survivors)
        return f"{100 * self.killed / tried:.1f} %" if tried else ""


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # mutmut is stopped with it
    end = time.monotonic() + 60 * options.minutes
    print("| module | mutants | killed | survived | not tried | score | seconds |")
    print("|---|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for module in options.modules or MODULES:
        with tree(module) as folder:
            score = measure(module, folder, end, options.at_once)
            total.update(killed=score.killed, survived=len(score.survivors), untried=score.untried)
            print(row(score), flush=True)
            if options.show:
                show(folder, score.survivors)
    tried = total["killed"] + total["survived"]
    print(f"\n{total['killed']} of {tried} killed: {100 * total['killed'] / max(tried, 1):.1f} %", end="")
    print(f"; {total['untried']} were not tried" if total["untried"] else "")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", choices=[[], *MODULES], help="default: all")
    parser.add_argument("--minutes", type=float, default=30.0, help="then the rest is left (30)")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--show", action="store_true", help="print each mutant that survived")
    return parser.parse_args()


@contextmanager
def tree(module: str) -> Iterator[Path]:
    """A copy of the tree in which only this module is to be mutated."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in COPIED:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, folder / part)
        with (folder / "pyproject.toml").open("a") as config:
            config.write(
                CONFIG.format(
                    module=json.dumps(f"src/tidegate/{module}.py"),
                    left_out=json.dumps(" and ".join(f"not {word}" for word in LEFT_OUT)),
                    tests=json.dumps([f"tests/{test}" for test in MODULES[module]]),
                )
            )
        yield folder


def measure(module: str, folder: Path, end: float, at_once: int) -> Score:
    began = time.monotonic()
    output = run(folder, ["run", "--max-children", str(at_once)], end - began)
    found = folder / "mutants" / "src" / "tidegate" / f"{module}.py.meta"
    codes = json.loads(found.read_text())["exit_code_by_key"] if found.exists() else {}
    if not any(code is not None for code in codes.values()) and time.monotonic() < end:
        sys.exit(f"{output}\nmutmut could not begin with {module}: see above")
    tried = {name: code for name, code in codes.items() if code is not None}
    survivors = [name for name, code in tried.items() if code not in KILLED]
    killed = len(tried) - len(survivors)
    return Score(module, killed, survivors, len(codes) - len(tried), time.monotonic() - began)


def run(folder: Path, arguments: list[str], seconds: float) -> str:
    """Run mutmut and return the end of what it printed; when the time is over, it is stopped."""
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "mutants"}
    environment.pop("PYTHONPATH", None)  # the mutated copy must be found first
    with (folder / "mutmut.log").open("w+") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "mutmut", *arguments],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        return log.read()[-4_000:]


def row(score: Score) -> str:
    survived = len(score.survivors)
    count = score.killed + survived + score.untried
    return (
        f"| `{score.module}` | {count} | {score.killed} | {survived} | {score.untried} | {score.share} "
        f"| {score.seconds:.0f} |"
    )


def show(folder: Path, survivors: Iterable[str]) -> None:
    for name in survivors:
        print(run(folder, ["show", name], 60.0), flush=True)


if __name__ == "__main__":
    main()
