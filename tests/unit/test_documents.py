"""Documents that point into the source point at files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidegate"


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "docs/explanation/architecture.md", "docs/reference/glossary.md"]
)
def test_every_source_file_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|\.lua|/))`", (ROOT / page).read_text()))
    assert named
    homes = (SOURCE, SOURCE / "stores" / "redis", ROOT)
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []


def test_the_glossary_is_sorted_and_has_one_row_for_each_word() -> None:
    rows = (ROOT / "docs" / "reference" / "glossary.md").read_text().splitlines()
    words = [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]
    assert words == sorted(set(words), key=str.lower)


@pytest.mark.parametrize("name", ["trouble.md", "attaching.md"])
def test_every_test_that_a_page_names_as_its_proof_exists(name: str) -> None:
    page = (ROOT / "docs" / "explanation" / name).read_text()
    named = re.findall(r"`(tests/[a-z0-9_/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    texts = {path: (ROOT / path).read_text() for path, _ in named if (ROOT / path).exists()}
    missing = [(path, name) for path, name in named if f"def {name}" not in texts.get(path, "")]
    assert missing == []
