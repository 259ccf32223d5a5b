"""Public examples come from the package registry: checked against the lock, unpacked with care."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

import public_examples
from public_examples import LIBRARIES, fetch, unpack_examples


def archive(to: Path, *members: tarfile.TarInfo) -> Path:
    path = to / "library-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = 2 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"ok"))
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def test_only_plain_files_of_the_examples_are_unpacked(tmp_path: Path) -> None:
    names = (
        "library-1.0/examples/echo.py",
        "library-1.0/examples/shop/bot.py",
        "library-1.0/setup.py",
        "library-1.0/examples/../../escaped.py",
        "/examples/absolute.py",
        "examples/top.py",
    )
    links = (link("library-1.0/examples/link.py", "/etc/passwd"), link("library-1.0/examples/up", ".."))
    path = archive(tmp_path, *map(tarfile.TarInfo, names), *links)

    unpack_examples(path, tmp_path / "out" / "examples")

    there = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if not file.is_dir()}
    assert there == {
        path.name,
        "out/examples/absolute.py",
        "out/examples/echo.py",
        "out/examples/shop/bot.py",
    }


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_registry_that_cannot_be_reached_is_named(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "warning\nERROR: no route to host\n")

    monkeypatch.setattr(public_examples, "FOLDER", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit, match=rf"examples of {library} could not be fetched .*no route to host"):
        fetch(library)

    assert "--require-hashes" in asked[0]
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_is_not_locked_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "requirements-dev.lock"
    lock.write_text("aiogram==0.1 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(public_examples, "FOLDER", tmp_path / "examples")
    monkeypatch.setattr(public_examples, "LOCK", lock)
    with pytest.raises(SystemExit, match=r"does not hold aiogram .*: run make setup"):
        fetch("aiogram")
