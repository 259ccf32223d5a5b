"""The packages of the example bot in JavaScript: installed once into `.node`, beside `.venv`.

    python tests/node_packages.py

Node and npm are those of the machine, or Debian's. A changed package.json is installed anew.
"""

import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from servers import NODE, NPM, ServerMissing, find

ROOT: Final = Path(__file__).resolve().parents[1]
WANTED: Final = ROOT / "examples" / "gateway" / "package.json"
FOLDER: Final = ROOT / ".node"
_NPM_FLAGS: Final = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def node_modules() -> Path:
    """The folder with the packages. Raises ServerMissing with what is missing."""
    find(NODE)
    made = FOLDER / sha256(WANTED.read_bytes()).hexdigest()[:12]
    if not made.is_dir():
        _install(made)
    return made / "node_modules"


def _install(to: Path) -> None:
    """All or nothing."""
    npm = find(NPM).path
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        place = Path(folder) / "installed"
        place.mkdir()
        shutil.copy(WANTED, place)
        command = [str(npm), "install", *_NPM_FLAGS]
        ran = subprocess.run(  # noqa: S603  (composed here)
            command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            reason = (ran.stderr.strip().splitlines() or ["npm gave no reason"])[-1]
            raise ServerMissing(
                f"the packages of {WANTED.relative_to(ROOT)} could not be installed: {reason}"
            )
        if not to.is_dir():
            place.rename(to)


def main() -> None:
    try:
        node_modules()
    except ServerMissing as missing:
        sys.stderr.write(f"{missing}\n")


if __name__ == "__main__":
    main()
