"""`tidegate docs`: open the documentation site, or find and print a page of it."""

import re
import webbrowser
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.markdown import Markdown

from tidegate.cli import terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.options import AsJson
from tidegate.errors import BadInputError, TidegateError

app = typer.Typer(add_completion=False)

# A checkout, and an installed wheel, which has the pages and no site.
PACKAGE: Final = Path(__file__).parents[1]
HOMES: Final = (PACKAGE.parents[1], PACKAGE)
HOST: Final = "127.0.0.1"
FOUND_AT_MOST: Final = 10
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORDS", help="What a page is about, or its name: send-reminders.", show_default=False
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port", min=0, max=65_535, metavar="N", help="Where the site is served; 0: any free port."
    ),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, and open nothing.")]


class DocPage(NamedTuple):
    name: str  # howto/send-reminders
    title: str
    path: Path


@app.command(
    epilog="[b]Try it:[/b]  tidegate docs  ·  tidegate docs reminders  ·  tidegate docs reference/cli"
)
def docs(
    words: Words = None, *, port: Port = 8008, no_browser: NoBrowser = False, as_json: AsJson = False
) -> None:
    """Open the documentation in a browser, or find pages by words.

    Without words, the site that `make docs` has built is served on this machine until Ctrl-C; nothing is
    loaded from elsewhere. If it was not built, the pages are listed. With words, the pages about them are
    listed, the best first; if only one is, or has this name, it is printed.
    """
    if not words and not as_json and (site := find_site()) is not None:
        serve(site, port, opens=not no_browser and terminal.is_watched())
        return
    pages = find_pages()
    found = pages_about(pages, " ".join(words)) if words else pages
    if not found:
        raise BadInputError(f"no page is about {' '.join(words or ())!r}: tidegate docs --json lists all")
    told = {
        "site": None if (site := find_site()) is None else str(site / "index.html"),
        "pages": _as_json(found),
    }
    if words and len(found) == 1 and not as_json:
        terminal.put(Markdown(found[0].path.read_text("utf-8")))
        return
    width = max(len(page.name) for page in found)
    lines = [f"{page.name:<{width}}  {page.title}" for page in found]
    if not words:
        lines.append(
            "\nTo read a page here: tidegate docs NAME. As a site: make docs, in the source of Tidegate"
        )
    terminal.report(told, *lines, as_json=as_json)


def _as_json(pages: list[DocPage]) -> list[dict[str, str]]:
    return [{"name": page.name, "title": page.title, "file": str(page.path)} for page in pages]


def find_site() -> Path | None:
    """Return the folder of the built site, if there is one."""
    return next((home / "site" for home in HOMES if (home / "site" / "index.html").exists()), None)


def find_pages() -> list[DocPage]:
    """Return every page of the documentation, by name. Raises TidegateError if this installation has none."""
    home = next((home / "docs" for home in HOMES if (home / "docs" / "README.md").exists()), None)
    if home is None:
        raise TidegateError(
            "this installation has no documentation: it comes with the source of Tidegate;"
            " tidegate COMMAND --help explains each command"
        )
    pages = []
    for path in sorted(home.rglob("*.md")):
        title = _TITLE.search(path.read_text("utf-8"))
        name = path.relative_to(home).with_suffix("").as_posix()
        pages.append(DocPage(name, title[1] if title else name, path))
    return pages


def pages_about(pages: list[DocPage], words: str) -> list[DocPage]:
    """Return the pages that have all these words, best first: in name or title, headings, text."""
    wanted = words.lower().removesuffix(".md")
    exact = [page for page in pages if wanted in {page.name.lower(), page.path.stem.lower()}]
    if exact:
        return exact
    scored = [(_score(page, wanted.split()), page) for page in pages]
    return [page for score, page in sorted(scored, key=lambda one: -one[0]) if score][:FOUND_AT_MOST]


def _score(page: DocPage, words: list[str]) -> int:
    """Return 0 if a word is missing. A page whose title has all is worth more than any number of mentions."""
    text = page.path.read_text("utf-8")
    places = (f"{page.name} {page.title}".lower(), " ".join(_HEADING.findall(text)).lower(), text.lower())
    worth = (10_000, 100, 1)
    if not all(word in places[-1] or word in places[0] for word in words):
        return 0
    return sum(
        value * min(place.count(word), 99)
        for word in words
        for place, value in zip(places, worth, strict=True)
    )


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:  # noqa: ANN401  (of the base class)
        """A line for each request would bury the address."""


def serve(site: Path, port: int, *, opens: bool) -> None:
    """Serve the site on this machine alone, until Ctrl-C."""
    try:
        server = ThreadingHTTPServer((HOST, port), partial(_QuietHandler, directory=str(site)))
    except OSError as error:
        raise TidegateError(ListenAddress(HOST, port).why_not(error)) from None
    with server:
        url = f"http://{HOST}:{server.server_address[1]}/"
        terminal.put_line(f"The documentation is at {url} (Ctrl-C stops)")
        if opens:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
