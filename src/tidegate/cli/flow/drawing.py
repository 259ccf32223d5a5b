"""A flow's diagram: as text everywhere, as a picture where Mermaid's own renderer is installed."""

import shutil
import subprocess
from typing import Final

from tidegate.cli.flow.finding import find_flow
from tidegate.cli.terminal import put_json, put_line
from tidegate.errors import MissingExtraError, TidegateError

RENDER_WITHIN: Final = 120  # seconds; it starts a browser


def draw(where: str, *, svg: str | None, as_json: bool) -> None:
    flow = find_flow(where)
    picture = flow.diagram()
    if svg is not None:
        _render(picture, svg)
    if as_json:
        put_json({"flow": flow.name, "diagram": picture, "svg": svg})
    else:
        put_line(picture.rstrip("\n") if svg is None else f"drawn into {svg}")


def _render(picture: str, svg: str) -> None:
    renderer = shutil.which("mmdc")
    if renderer is None:
        raise MissingExtraError(
            "there is no mmdc on the PATH to draw an SVG with: install @mermaid-js/mermaid-cli,"
            " or leave out --svg and paste the diagram into any Mermaid viewer, such as mermaid.live"
        )
    command = [renderer, "--quiet", "--input", "-", "--output", svg, "--outputFormat", "svg"]
    try:
        subprocess.run(  # noqa: S603  (the renderer that the PATH names, without a shell)
            command,
            input=picture,
            text=True,
            encoding="utf-8",
            capture_output=True,
            check=True,
            timeout=RENDER_WITHIN,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "nothing").strip().splitlines()
        raise TidegateError(f"mmdc could not draw {svg}: it said {said[0] if said else 'nothing'}") from error
    except subprocess.TimeoutExpired as error:
        raise TidegateError(
            f"mmdc did not draw {svg} within {RENDER_WITHIN} s: draw the text elsewhere"
        ) from error
