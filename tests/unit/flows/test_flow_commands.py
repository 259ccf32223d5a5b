"""`tidegate flow check` and `tidegate flow diagram`."""

import json
import sys
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.flows import plain_of
from unit.flows.talk import shop

MODULE = """
from tidegate.flows import FlowBuilder
builder = FlowBuilder("tiny")
builder.final("a", say="Hi")
good = builder.build()
wrong = FlowBuilder("wrong")
wrong.state("a", say="Hi")
number = 5
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a module and a file in it, forgotten afterwards."""
    (tmp_path / "shop_flows.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "breaks_flows.py").write_text("import nowhere_to_be_found", encoding="utf-8")
    (tmp_path / "ends_flows.py").write_text("raise SystemExit('no token')", encoding="utf-8")
    (tmp_path / "raises_flows.py").write_text("1 / 0", encoding="utf-8")
    (tmp_path / "shop.json").write_text(json.dumps(plain_of(shop().build())), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("shop_flows", "breaks_flows", "ends_flows", "raises_flows"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_sound_flow_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "check", "shop_flows:good"]) == 0
    assert capsys.readouterr().out == "flow tiny is sound: 1 states, 0 transitions\n"


def test_problems_are_listed_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "check", "shop_flows:wrong"]) == 1
    assert capsys.readouterr().out == (
        "a: no transition leads out of it: add one, or make it final\nflow wrong: 1 problem\n"
    )


def test_programs_get_problems_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "check", "shop_flows:wrong", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "flow": "wrong",
        "passed": False,
        "states": 1,
        "ways": 0,
        "problems": [
            {
                "kind": "dead_end",
                "state": "a",
                "text": "no transition leads out of it: add one, or make it final",
            }
        ],
    }


def test_a_file_is_checked_without_its_guards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "check", "shop.json"]) == 0
    assert "flow shop is sound: 7 states" in capsys.readouterr().out


def test_a_diagram_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "diagram", "shop.json"]) == 0
    assert capsys.readouterr().out == shop().build().diagram()
    assert main(["flow", "diagram", "shop.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "flow": "shop",
        "diagram": shop().build().diagram(),
        "svg": None,
    }


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("shop_flows", "'shop_flows' names no flow: write MODULE:NAME, or a .toml or .json file"),
        ("shop_flows.py:good", "shop_flows.py is a file: write its module, shop_flows"),
        ("bots/shop.py:good", "bots/shop.py is a file: write its module, bots.shop"),
        ("no_such_flows:x", "there is no module no_such_flows in"),
        ("shop_flows.inner:x", "there is no module shop_flows.inner in"),
        ("shop_flows:x", "shop_flows has no x: its flows are builder, good, wrong"),
        ("shop_flows:number", "shop_flows:number is not a flow but int"),
        ("breaks_flows:x", "breaks_flows needs nowhere_to_be_found, which is not installed"),
        ("ends_flows:x", "ends_flows cannot be imported: SystemExit: no token"),
        ("raises_flows:x", "raises_flows cannot be imported: ZeroDivisionError: division by zero"),
        ("missing.toml", "missing.toml: No such file"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(
    where: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flow", "check", where]) in {1, 2}
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"tidegate: {told}")
    assert complaint.count("\n") == 1


def test_a_picture_is_drawn_into_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "diagram", "shop.json", "--svg", "shop.svg"]) == 0
    assert (folder / "shop.svg").read_text(encoding="utf-8") == shop().build().svg()
    assert capsys.readouterr().out == "drawn into shop.svg\n"


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "diagram", "shop.json", "--svg", "missing/shop.svg"]) == 2
    assert capsys.readouterr().err == "tidegate: cannot write missing/shop.svg: no such file or directory\n"
