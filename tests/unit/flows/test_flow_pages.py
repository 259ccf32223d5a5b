"""The samples of the pages on flows: each is checked, and played as the page shows it."""

import io
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tidegate.cli import main
from tidegate.flows import Flow, FlowBuilder, flow_of, load_flow

DOCS: Final = Path(__file__).parents[3] / "docs"
HOWTO: Final = (DOCS / "howto" / "build-a-conversation.md").read_text("utf-8")
REFERENCE: Final = (DOCS / "reference" / "flows.md").read_text("utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES: Final = ("menu.jpg", "hall.jpg", "garden.jpg", "bills/hall.pdf")


def samples(page: str) -> list[str]:
    """Python that declares a flow."""
    return [text for kind, text in _BLOCK.findall(page) if kind == "python" and "FlowBuilder(" in text]


def played() -> list[tuple[str, str]]:
    """Declared flows, each with the play that follows it on the page."""
    found, flow = [], ""
    for kind, text in _BLOCK.findall(HOWTO):
        if kind == "python" and "FlowBuilder(" in text:
            flow = text
        elif not kind and text.startswith("> "):
            found.append((flow, text))
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the files that the samples show."""
    (tmp_path / "bills").mkdir()
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", [*samples(HOWTO), *samples(REFERENCE)])
def test_every_flow_of_the_pages_is_sound(text: str) -> None:
    names: dict[str, Any] = {"__name__": "sample"}
    exec(compile(text, "the page", "exec"), names)  # noqa: S102  (our own docs)
    builders = [one for one in names.values() if isinstance(one, FlowBuilder)]
    assert builders
    for builder in builders:
        assert isinstance(builder.build(), Flow)


@pytest.mark.parametrize(("flow", "play"), played(), ids=lambda text: text.split("\n")[0])
def test_every_play_of_the_page_goes_as_it_is_shown(
    flow: str, play: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sample_of_a_page.py").write_text(flow, "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "sample_of_a_page", raising=False)
    lines = [line[2:] for line in play.splitlines() if line.startswith("> ")]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert main(["flow", "preview", "sample_of_a_page:flow"]) == 0
    shown = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    assert shown == play


def test_the_declaration_of_the_reference_is_sound(folder: Path) -> None:
    declared, texts = (text for kind, text in _BLOCK.findall(REFERENCE) if kind == "toml")
    (folder / "payment.toml").write_text(declared, "utf-8")
    (folder / "payment.texts.toml").write_text(texts, "utf-8")
    flow = load_flow("payment.toml")
    assert flow.validate() == []
    assert flow_of({"name": "x", "initial": "a", "states": {"a": {"final": True}}}).validate() == []
