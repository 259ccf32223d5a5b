"""Builds the documentation site, and checks every link, anchor and asset of it.

`make docs` writes it into site/; `make check` builds it elsewhere and keeps nothing. The pages are those of
docs/, which are read on GitHub as they stand. What they link to elsewhere in the repository (an example, the
figures, a file of deploy/) becomes a page of the site, so that the site is whole without a network.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
CONFIGURATION: Final = ROOT / "mkdocs.yml"
SITE: Final = ROOT / "site"
ELSEWHERE: Final = "project"  # where pages of files outside docs/ go

_FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(\]\()([^)\s]+)(\))")
_LANGUAGES: Final = {
    ".py": "python",
    ".sh": "sh",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".conf": "nginx",
}
_TITLED: Final = {".md", ".svg", ".png"}  # these are copied as they are
# Code, figures and changes have every word, and would drown the pages in the search.
_UNLISTED: Final = "---\nsearch:\n  exclude: true\n---\n\n"


class BadSiteError(Exception):
    """Has every problem, a line each."""


class Stage:
    """Copies docs/ and everything that its pages link to into one folder, with links that fit there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self._waiting: list[Path] = []
        self._places: dict[Path, Path] = {}

    def fill(self) -> None:
        for path in sorted(DOCS.rglob("*")):
            if path.is_file():
                self._place_of(path)
        while self._waiting:
            self._write(self._waiting.pop())
        if self.problems:
            raise BadSiteError("\n".join(self.problems))

    def _place_of(self, path: Path) -> Path:
        """Where a file or folder of the repository is on the site, below its top; it is written later."""
        if path not in self._places:
            inside = path.is_relative_to(DOCS)
            place = path.relative_to(DOCS) if inside else ELSEWHERE / path.relative_to(ROOT)
            if path.is_dir():
                place /= "README.md"
            elif path.suffix not in _TITLED:
                place = place.with_name(f"{place.name}.md")
            self._places[path] = place
            self._waiting.append(path)
        return self._places[path]

    def _write(self, path: Path) -> None:
        target = self.folder / self._places[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            head = "" if path.is_relative_to(DOCS) else _UNLISTED
            target.write_text(head + self._linked(path.read_text("utf-8"), path, self._places[path]), "utf-8")
        elif path.is_dir():
            target.write_text(_UNLISTED + self._folder_page(path), "utf-8")
        elif path.suffix in _TITLED:
            shutil.copyfile(path, target)
        else:
            target.write_text(f"{_UNLISTED}# {path.relative_to(ROOT)}\n\n{_as_code(path)}", "utf-8")

    def _folder_page(self, folder: Path) -> str:
        readme = folder / "README.md"
        place = self._places[folder]
        top = self._linked(readme.read_text("utf-8"), readme, place) if readme.exists() else None
        parts = [top or f"# {folder.relative_to(ROOT)}\n"]
        parts += [
            f"## {path.relative_to(folder)}\n\n{_as_code(path)}"
            for path in sorted(folder.rglob("*"))
            if path.suffix in {*_LANGUAGES, ".txt", ".service"} and "__pycache__" not in path.parts
        ]
        return "\n".join(parts)

    def _linked(self, text: str, source: Path, place: Path) -> str:
        """Return the page with its links rewritten; code is left alone."""
        parts, begin = [], 0
        for block in _FENCED.finditer(text):
            parts += [self._relinked(text[begin : block.start()], source, place), block[0]]
            begin = block.end()
        return "".join([*parts, self._relinked(text[begin:], source, place)])

    def _relinked(self, text: str, source: Path, place: Path) -> str:
        def relinked(link: re.Match[str]) -> str:
            path, mark, anchor = link[2].partition("#")
            if "://" in link[2] or not path:
                return link[0]
            target = (source.parent / path).resolve()
            if not target.exists() or not target.is_relative_to(ROOT):
                self.problems.append(f"{source.relative_to(ROOT)}: {link[2]} does not exist")
                return link[0]
            found = os.path.relpath(self._place_of(target), place.parent)
            return f"{link[1]}{found}{mark}{anchor}{link[3]}"

        return _LINK.sub(relinked, text)


def _as_code(path: Path) -> str:
    return f"````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8').rstrip()}\n````\n"


class _Page(HTMLParser):
    """The anchors of a page, and its links and assets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.problems: list[str] = []
        self._in_paragraph = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            self.assets.append(given.get("href", ""))
        elif tag in {"script", "img", "iframe", "source"} and "src" in given:
            self.assets.append(given["src"])
        if "mermaid" in given.get("class", ""):
            self.problems.append("a Mermaid diagram would be drawn by a script from elsewhere: draw an SVG")
        self._in_paragraph = tag == "p"

    def handle_data(self, data: str) -> None:
        if self._in_paragraph and re.search(r"\n(?:- |\d\. |\|.*\|$)", data):
            self.problems.append(f"not shown as a list or table: {data.strip()[:60]!r}")


def problems_of(site: Path) -> list[str]:
    """Return every broken link, missing anchor, and asset that would be fetched from elsewhere."""
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        if path.name != "404.html"  # its links are of the server's root
        for problem in (*page.problems, *_wrong_links(path, page, pages), *_wrong_assets(path, page))
    ] + list(_wrong_styles(site))


def _wrong_links(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for link in page.links:
        if "://" in link or link.startswith(("mailto:", "javascript:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / unquote(name)).resolve() if name else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{link} does not exist"
        elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
            yield f"{link}: no such heading"


def _wrong_assets(path: Path, page: _Page) -> Iterator[str]:
    for asset in page.assets:
        if "://" in asset or asset.startswith("//"):
            yield f"loads {asset} from elsewhere"
        elif not asset.startswith("data:") and not (path.parent / asset.partition("?")[0]).exists():
            yield f"{asset} does not exist"


def _wrong_styles(site: Path) -> Iterator[str]:
    for path in sorted(site.rglob("*.css")):
        for url in re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')\s]+", path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: loads {url} from elsewhere"


def build(site: Path) -> None:
    """Build the site into a folder, which is replaced. Raises BadSiteError."""
    with tempfile.TemporaryDirectory(prefix="tidegate-site-") as name:
        work = Path(name).resolve()
        shutil.copy(CONFIGURATION, work)
        Stage(work / "docs").fill()
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(  # noqa: S603  (our own)
            command,
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
        if done.returncode:
            raise BadSiteError(done.stdout + done.stderr)
        problems = problems_of(work / "site")
        if problems:
            raise BadSiteError("\n".join(problems))
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(work / "site", site)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build and check, and keep nothing")
    try:
        if parser.parse_args().check:
            with tempfile.TemporaryDirectory() as name:
                build(Path(name) / "site")
        else:
            build(SITE)
            print(f"{SITE / 'index.html'}: open it, or run: tidegate docs")  # noqa: T201  (a command)
    except BadSiteError as error:
        sys.exit(f"The site is not right:\n{error}")


if __name__ == "__main__":
    main()
