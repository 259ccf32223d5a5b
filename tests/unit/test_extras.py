"""A library that is missing is named with the extra that brings it, wherever it is imported."""

import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tidegate import MissingExtraError
from tidegate.cli.errors import complain, line_for
from tidegate.extras import EXTRAS, extra, missing_extra
from tidegate.lazy import lazy_names

PROJECT: Final = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
IMPLIED: Final = {"starlette": "fastapi"}  # a package that brings another one
RUN_NOT_IMPORTED: Final = {"py-spy"}


def missing(library: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {library!r}", name=library)


@pytest.mark.parametrize("library", EXTRAS)
def test_each_library_comes_with_the_extra_that_is_named(library: str) -> None:
    name, package = EXTRAS[library]
    wanted = [Requirement(line) for line in PROJECT["optional-dependencies"][name]]
    assert IMPLIED.get(package, package) in {one.name for one in wanted}


def test_each_package_of_an_extra_is_named_when_it_is_missing() -> None:
    listed = {Requirement(line).name for lines in PROJECT["optional-dependencies"].values() for line in lines}
    assert {package for _, package in EXTRAS.values()} >= listed - RUN_NOT_IMPORTED - {PROJECT["name"]}


def test_a_part_of_a_library_counts_as_the_library() -> None:
    found = missing_extra(missing("sqlalchemy.ext.asyncio"))
    assert found is not None
    assert (found.name, str(found)) == (
        "sqlalchemy",
        'sqlalchemy is not installed: pip install "tidegate[sql]"',
    )


def test_an_import_that_fails_for_another_reason_stays_as_it_is() -> None:
    assert missing_extra(missing("shop.orders")) is None
    with pytest.raises(ModuleNotFoundError, match=r"shop\.orders") as raised, extra("aiogram"):
        raise missing("shop.orders")
    assert not isinstance(raised.value, MissingExtraError)


def test_a_public_name_says_which_extra_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_sample").mkdir()
    (tmp_path / "lazy_sample" / "__init__.py").touch()
    (tmp_path / "lazy_sample" / "bots.py").write_text(
        "raise ModuleNotFoundError('No module named aiogram', name='aiogram')"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingExtraError, match=r'pip install "tidegate\[aiogram\]"'):
        lazy_names("lazy_sample", {"bots": ["Storage"]})("Storage")


def test_a_command_without_its_library_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:

    assert complain(missing("fastapi")) == 1
    assert capsys.readouterr().err == 'tidegate: fastapi is not installed: pip install "tidegate[service]"\n'
    assert "unexpected" in line_for(missing("shop"))
