"""The example bots that aiogram and python-telegram-bot publish with their source: fetched, not copied.

    python tests/public_examples.py

Puts those of the installed versions into the environment that runs this, once. Their source archives are
checked against the hashes of requirements-dev.lock; only the examples are unpacked.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

LIBRARIES = ("aiogram", "python-telegram-bot")
FOLDER = Path(sys.prefix) / "public-examples"
LOCK = Path(__file__).parent.parent / "requirements-dev.lock"


def folder_of(library: str) -> Path:
    """Where the examples of the installed version are, or would be."""
    return FOLDER / f"{library}-{importlib.metadata.version(library)}"


def fetch(library: str) -> None:
    """Download and unpack, all or nothing. Exits with what is wrong."""
    folder = folder_of(library)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        unpacked = Path(made) / "examples"
        unpack_examples(_download(library, Path(made)), unpacked)
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)


def unpack_examples(archive: Path, to: Path) -> None:
    """Write the plain files below <name>-<version>/examples/ and nothing else, wherever a name may point."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts[1:]
            if parts[:1] != ("examples",) or ".." in parts or not member.isfile():
                continue
            content = tar.extractfile(member)
            assert content is not None
            path = to.joinpath(*parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())


def _download(library: str, to: Path) -> Path:
    wanted = to / "wanted.txt"
    wanted.write_text(_locked(library))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    source = ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    done = subprocess.run(  # noqa: S603  (our own pip)
        [*pip, *source, "--dest", str(to), "--requirement", str(wanted)],
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(to.glob("*.tar.gz"))
    if done.returncode or not archives:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        sys.exit(
            f"The examples of {library} could not be fetched from the package registry: {reason}\n"
            "Look at the network and at pip's settings, then run this again: "
            "without them the tests of public example bots are skipped."
        )
    return archives[0]


def _locked(library: str) -> str:
    """The line of the lock for the installed version, with its hashes."""
    version = importlib.metadata.version(library)
    line = re.search(rf"^{library}=={re.escape(version)} (?:.*\\\n)+.*$", LOCK.read_text(), re.MULTILINE)
    if line is None:
        sys.exit(f"{LOCK.name} does not hold {library} {version}, which is installed: run make setup")
    return line[0]


def main() -> None:
    for library in LIBRARIES:
        if not folder_of(library).is_dir():
            fetch(library)


if __name__ == "__main__":
    main()
