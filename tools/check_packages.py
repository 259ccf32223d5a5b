"""Build the wheel and the sdist, and install them into clean environments: alone, and with each extra.

In each of them, what the extra brings must work, and everything else must name the extra that it needs.
`--python` takes another interpreter. Needs the package registry.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
PATIENCE: Final = 120.0  # seconds for one command
EXTRAS: Final = ("", "aiogram", "celery", "profile", "ptb", "redis", "sentry", "service", "sql", "all")
BRINGS: Final[Mapping[str, Collection[str]]] = {  # beside itself
    "all": EXTRAS,
    "celery": ("redis",),
    "service": ("sql",),
}


class Trial(NamedTuple):
    """Arguments of Python. It works if it ends with 0, or if it fails later, with the words of `proof`."""

    arguments: Sequence[str]
    needs: Collection[str] = ()  # extras
    proof: str = ""


def command(line: str, *needs: str, proof: str = "") -> Trial:
    return Trial(["-m", "tidegate", *line.split()], needs, proof)


def code(line: str, *needs: str) -> Trial:
    return Trial(["-c", line], needs)


def trials(busy: int) -> Sequence[Trial]:
    """Return what is tried everywhere. `busy`: a port on loopback at which nobody can listen."""
    taken = "address already in use"
    return (
        command("version"),
        command("doctor"),
        command("docs reminders --json"),
        command("demo --seconds 1 --json", proof='"lost": 0'),
        command("plan --users 1000 --at 09:00 --rate 30/1"),
        command("simulate --users 200 --hours 24 --seed 7 --json"),
        command("stress polling --users 20 --duration 300 --json"),
        code("from tidegate import Tidegate; Tidegate('a.db')"),
        code("from tidegate import TidegateClient; TidegateClient('http://127.0.0.1:9', 'tg_x').close()"),
        code("from tidegate import SqliteStorage", "aiogram"),
        code("from tidegate import TidegateLimiter", "ptb"),
        code(
            "import os; os.environ['SENTRY_DSN'] = 'http://key@127.0.0.1:9/1';"
            "from tidegate import Tidegate; Tidegate('a.db').report_to_sentry()",
            "sentry",
        ),
        command("demo payment --users 1 --json", "aiogram", proof='"lost": 0'),
        command("demo habits --users 2 --json", "aiogram", "sql", proof='"lost": 0'),
        command("token create --name me --store new.db --json", "sql"),
        command("queue stats --store redis://127.0.0.1:1", "redis", proof="cannot be reached"),
        command(f"gateway --listen 127.0.0.1:{busy}", "service", proof=taken),
        command(f"api --port {busy}", "service", proof=taken),
    )


class Found(NamedTuple):
    works: int
    named: int
    wrong: list[str]


def main() -> None:
    options = _options()
    console = Console()
    table = Table("package", "works", "names its extra", "wrong", title=f"Python: {options.python}")
    wrong: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-packages-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        place, tried = Path(folder), trials(listening.getsockname()[1])
        _run([sys.executable, "-m", "hatchling", "build", "-d", folder], ROOT)
        [wheel], [sdist] = place.glob("*.whl"), place.glob("*.tar.gz")
        installs = [*((wheel, extra) for extra in options.extras), (sdist, "")]
        for package, extra in track(installs, "Installing", console=console, disable=not console.is_terminal):
            name = f"{'wheel' if package is wheel else 'sdist'}{f'[{extra}]' if extra else ''}"
            found = _try(place, package, extra, options.python, tried)
            table.add_row(escape(name), str(found.works), str(found.named), str(len(found.wrong)))
            wrong += [f"{name}: {line}" for line in found.wrong]
    console.print(table)
    for line in wrong:
        console.print(line, markup=False, highlight=False)
    sys.exit(1 if wrong else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install into")
    parser.add_argument("--extras", nargs="*", default=EXTRAS, help="only these ('' is none)")
    return parser.parse_args()


def _try(place: Path, package: Path, extra: str, python: str, tried: Sequence[Trial]) -> Found:
    """Install a package into a clean environment, and try everything there, each in an empty folder."""
    environment = place / f"environment{package.suffix}-{extra}"
    interpreter = str(environment / "bin" / "python")
    uv = str(Path(sys.executable).with_name("uv"))
    _run([uv, "venv", "--quiet", "--python", python, str(environment)], place)
    spec = f"{package}[{extra}]" if extra else str(package)
    _run([uv, "pip", "install", "--quiet", "--python", interpreter, spec], place)
    works, named, wrong = 0, 0, list[str]()
    brought = {extra, *BRINGS.get(extra, ())}
    for trial in tried:
        status, said = _ran([interpreter, *trial.arguments], Path(tempfile.mkdtemp(dir=place)))
        missing = [one for one in trial.needs if one not in brought]
        if not missing and (status == 0 or (trial.proof and trial.proof in said)):
            works += 1
        elif status != 0 and any(f'pip install "tidegate[{one}]"' in said for one in missing):
            named += 1
        else:
            wrong.append(f"{' '.join(trial.arguments)}: exit code {status}: {said[-300:]}")
    return Found(works, named, wrong)


def _run(arguments: Sequence[str], folder: Path) -> None:
    status, said = _ran(arguments, folder)
    if status != 0:
        raise SystemExit(f"{' '.join(arguments)}: exit code {status}\n{said}")


def _ran(arguments: Sequence[str], folder: Path) -> tuple[int, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "TELEGRAM_"))
    }
    ended = subprocess.run(  # noqa: S603  (what stands above)
        arguments, cwd=folder, env=kept, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return ended.returncode, " ".join(f"{ended.stdout} {ended.stderr}".split())


if __name__ == "__main__":
    main()
