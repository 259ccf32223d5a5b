"""The wheel and the sdist hold what they should. `make packages` installs them into clean environments."""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tidegate.cli.demo.example_bot import EXAMPLE_FOLDERS
from tidegate.cli.docs import PACKAGE

ROOT: Final = Path(__file__).parents[2]
LEFT_OUT: Final = frozenset(("__pycache__",))


def files_below(folder: Path) -> Iterator[str]:
    for one in folder.rglob("*"):
        if one.is_file() and not LEFT_OUT & set(one.parts):
            yield str(one.relative_to(folder))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(  # noqa: S603  (what stands here)
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def test_the_wheel_holds_the_package_the_bots_of_the_demos_and_the_pages_of_tidegate_docs(
    built: Path,
) -> None:
    [wheel] = built.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("tidegate-")}

    package = {f"tidegate/{name}" for name in files_below(ROOT / "src" / "tidegate")}
    bots = {
        f"tidegate/cli/demo/examples/{bot}/{name}"
        for bot in ("habit_bot", "payment_bot")
        for name in files_below(ROOT / "examples" / bot)
    }
    pages = {f"tidegate/docs/{name}" for name in files_below(ROOT / "docs") if Path(name).suffix == ".md"}
    assert held == package | bots | pages
    assert PACKAGE.relative_to(ROOT / "src").as_posix() == "tidegate"  # where `tidegate docs` looks
    assert "tidegate/py.typed" in held
    installed, _ = EXAMPLE_FOLDERS
    assert installed.relative_to(ROOT / "src").as_posix() == "tidegate/cli/demo/examples"


def test_the_sdist_can_be_tested_and_run(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}

    needed = {
        f"{folder}/{name}"
        for folder in ("src", "tests", "examples", "benchmarks", "deploy", "tools", "docs")
        for name in files_below(ROOT / folder)
        if name.endswith((".py", ".lua", ".html", ".md", ".toml", ".lock"))
    }
    assert needed | {"Makefile", "pyproject.toml", "requirements.lock", "requirements-dev.lock"} <= held
    assert not {name for name in held if name.endswith((".pyc", ".db-wal", ".key", ".env"))}
