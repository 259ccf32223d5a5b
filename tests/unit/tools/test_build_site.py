"""The site is built from the pages as they are, and what is wrong with it is found."""

from pathlib import Path

import pytest

import build_site

WHOLE = '<h1 id="top">Pacing</h1><p>See <a href="other.html#why">why</a>.</p><img src="a.png">'
OTHER = '<h2 id="why">Why</h2><a href="index.html">back</a>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text(WHOLE)
    (tmp_path / "other.html").write_text(OTHER)
    (tmp_path / "a.png").touch()
    return tmp_path


def test_a_site_whose_links_lead_somewhere_has_no_problem(site: Path) -> None:
    assert build_site.problems_of(site) == []


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('<a href="gone.html">x</a>', "gone.html does not exist"),
        ('<a href="other.html#how">x</a>', "other.html#how: no such heading"),
        ('<a href="#how">x</a>', "#how: no such heading"),
        ('<script src="https://cdn.example/a.js"></script>', "loads https://cdn.example/a.js from elsewhere"),
        (
            '<link rel="stylesheet" href="//fonts.example/a.css">',
            "loads //fonts.example/a.css from elsewhere",
        ),
        ('<img src="b.png">', "b.png does not exist"),
        ("<p>Two things:\n- one\n- two</p>", "not shown as a list or table"),
        ('<pre class="mermaid">a</pre>', "a Mermaid diagram would be drawn by a script from elsewhere"),
    ],
)
def test_what_is_wrong_with_a_page_is_named(site: Path, written: str, problem: str) -> None:
    (site / "index.html").write_text(WHOLE + written)
    [found] = build_site.problems_of(site)
    assert found.startswith(f"index.html: {problem}")


def test_a_style_that_loads_a_font_from_elsewhere_is_named(site: Path) -> None:
    (site / "a.css").write_text("@font-face{src:url(https://fonts.example/a.woff2)}")
    assert build_site.problems_of(site) == ["a.css: loads url(https://fonts.example/a.woff2 from elsewhere"]


def test_what_pages_link_to_outside_docs_becomes_a_page_and_code_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "repository"
    files = {
        "docs/howto/deploy.md": "[conf](../../deploy/nginx.conf#x), [all](../../deploy)\n"
        "```\n[a](gone.md)\n```\n",
        "deploy/nginx.conf": "listen 80;",
        "deploy/README.md": "# Deploy\n\n[how](../docs/howto/deploy.md)\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(build_site, "ROOT", root)
    monkeypatch.setattr(build_site, "DOCS", root / "docs")

    build_site.Stage(tmp_path / "out").fill()

    page = (tmp_path / "out/howto/deploy.md").read_text()
    assert "(../project/deploy/nginx.conf.md#x), [all](../project/deploy/README.md)" in page
    assert "[a](gone.md)" in page
    assert "listen 80;" in (tmp_path / "out/project/deploy/nginx.conf.md").read_text()
    folder = (tmp_path / "out/project/deploy/README.md").read_text()
    assert "(../../howto/deploy.md)" in folder
    assert "## nginx.conf" in folder


def test_pages_from_outside_docs_do_not_drown_the_others_in_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"docs/a.md": "[changes](../CHANGELOG.md)", "CHANGELOG.md": "# Changes\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    monkeypatch.setattr(build_site, "DOCS", tmp_path / "docs")

    build_site.Stage(tmp_path / "out").fill()

    assert (tmp_path / "out/a.md").read_text().startswith("[changes]")
    assert "exclude: true" in (tmp_path / "out/project/CHANGELOG.md").read_text()


def test_a_link_to_no_file_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("[b](b.md)")
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    monkeypatch.setattr(build_site, "DOCS", tmp_path / "docs")
    with pytest.raises(build_site.BadSiteError, match=r"docs/a\.md: b\.md does not exist"):
        build_site.Stage(tmp_path / "out").fill()
