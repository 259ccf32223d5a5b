"""Take pictures of every page of the dashboard: light, dark, and on a phone.

    python tools/make_screenshots.py [--folder docs/screenshots] [--seconds 125]

The sample of `tidegate up` runs until there is something to see. Pages are those that the dashboard
declares, with what the sample holds for the parameters of their paths; a page of which it holds nothing is
named and left out. git keeps only those that the README shows: see `.gitignore`.
"""

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import Visitor, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LINK: Final = re.compile(r"http://127\.0\.0\.1:\d+/login\?code=\S+")
PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
COLOURS: Final = 128  # of a picture: as many as pages without photos need
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "is_mobile": True,
        "has_touch": True,
    },
}
TALLEST: Final = 2_400  # pixels of a page: a list has no end


def addresses(paths: Iterable[str], examples: Mapping[str, str]) -> Iterator[str]:
    """Return paths with an example for each parameter. Raises KeyError without one."""
    return (PARAMETER.sub(lambda found: examples[found[1]], path) for path in paths)


@contextmanager
def sample() -> Iterator[str]:
    """Run the sample; yield its one-time link."""
    command = [sys.executable, "-m", "tidegate", "up", "--sample", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(  # noqa: S603  (our own command)
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None  # noqa: S101
            yield next(found[0] for line in process.stdout if (found := LINK.search(line)))
        finally:
            process.kill()
            process.communicate()


def examples_of(visitor: Visitor) -> dict[str, str]:
    """Return values for the parameters of pages, as far as the sample has some."""

    def first(address: str, field: str) -> str | None:
        items = visitor.context.request.get(f"/api/v1/{address}").json()["items"]
        return str(items[0][field]) if items else None

    message = last_to_leave(visitor) or first("messages?limit=1", "id")
    found = {
        "bot": "42",
        "message_id": message,
        "id": message,
        "name": first("broadcasts", "name"),
        "chat_id": first("history?limit=1&direction=in", "chat_id"),
        "telegram_id": first("history?limit=1&direction=in", "telegram_message_id"),
        "flow": first("flows", "name"),
        "job": first("jobs?limit=1", "id"),
    }
    return {name: value for name, value in found.items() if value is not None}


def last_to_leave(visitor: Visitor) -> str | None:
    """Return the message that waits longest: its page is to say why it waits."""
    items = visitor.context.request.get("/api/v1/messages?limit=200&state=queued").json()["items"]
    last = max(items, key=lambda one: one["not_before"] or 0.0, default=None)
    return None if last is None else str(last["id"])


def take(browser: "Browser", link: str, folder: Path, seconds: float) -> None:
    # Here, as `addresses` is imported by tests and needs none of it.
    from tidegate.ops.dashboard.dashboard import PAGES  # noqa: PLC0415

    origin = link.partition("/login")[0]
    with Visitor(browser, origin) as visitor:
        visitor.open(link)
        cookie = next(one["value"] for one in visitor.context.cookies())
        visitor.page.wait_for_timeout(1_000 * seconds)
    for look, options in LOOKS.items():
        with Visitor(browser, origin, cookie, **options) as visitor:
            examples = examples_of(visitor)  # anew: what waited has left
            for page in PAGES:
                try:
                    [address] = addresses([page.path], examples)
                except KeyError as missing:
                    sys.stderr.write(f"{page.path}: the sample holds no {missing}\n")
                    continue
                visitor.open(address)
                save(visitor, folder / f"{name_of(page.path)}-{look}.png")
    with Visitor(browser, origin, **LOOKS["light"]) as stranger:
        stranger.open("/login")
        save(stranger, folder / "login-light.png")


def name_of(path: str) -> str:
    return "-".join(re.findall(r"\w+", PARAMETER.sub("one", path))) or "now"


def save(visitor: Visitor, file: Path) -> None:
    """Write what is seen, with few colours: a tenth of the size."""
    visitor.page.wait_for_timeout(300)  # for what comes live
    whole = Image.open(io.BytesIO(visitor.page.screenshot(full_page=True)))
    picture = whole.crop((0, 0, whole.width, min(whole.height, TALLEST)))
    # By coverage, not by frequency: else a small label gets the colour of what there is more of.
    few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, optimize=True)
    sys.stdout.write(f"{file} {file.stat().st_size // 1024} KB\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the dashboard.")
    parser.add_argument("--folder", type=Path, default=Path("docs/screenshots"))
    parser.add_argument(
        "--seconds",
        type=float,
        default=125.0,
        help="of traffic before: the second broadcast runs (default: 125)",
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with sample() as link, chromium() as browser:
        take(browser, link, options.folder, options.seconds)


if __name__ == "__main__":
    main()
