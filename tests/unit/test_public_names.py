"""Users import from `tidegate` alone; the reference lists exactly what is there."""

import inspect
import re
from pathlib import Path

import tidegate
from tidegate import Tidegate, sim

DOCS = Path(__file__).parents[2] / "docs"
BEFORE_1_0 = {"hook", "poll", "reception"}  # old spellings, documented in CHANGELOG.md only
INTERNAL = {"core", "flow_sessions"}


def names_listed_in(page: str) -> list[str]:
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_reference_lists_every_public_name_once() -> None:
    listed = names_listed_in((DOCS / "reference" / "names.md").read_text())
    assert sorted(listed) == sorted(tidegate.__all__)


def test_every_public_name_can_be_imported() -> None:
    for package in (tidegate, sim):
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_the_reference_names_every_verb_of_the_gate() -> None:
    page = (DOCS / "reference" / "gate.md").read_text()
    verbs = {name for name, _ in inspect.getmembers(Tidegate) if not name.startswith("_")}
    missing = [name for name in verbs - BEFORE_1_0 - INTERNAL if not re.search(rf"gate\.{name}\b", page)]
    assert missing == []


def test_documents_and_examples_import_from_the_public_face_alone() -> None:
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", *(DOCS.parent / "examples").rglob("*")]
    texts = {page: page.read_text() for page in pages if page.suffix in {".md", ".py"}}
    deep = [
        f"{page.name}: {found}"
        for page, text in texts.items()
        for found in re.findall(r"(?:from|import) tidegate\.(?!(?:sim|nocodb)\b)[\w.]+", text)
    ]
    assert deep == []


def test_an_unknown_name_is_no_attribute() -> None:
    assert not hasattr(tidegate, "Unheard")
