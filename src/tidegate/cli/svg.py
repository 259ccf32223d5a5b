"""SVG charts: the shapes they are made of, and their files. Without scripts; light and dark."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from tidegate.errors import BadInputError

STYLE = """
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2933 }
  .title { font-size: 19px; font-weight: 600 } .small { font-size: 11px } .quiet { fill: #5b6875 }
  .paper { fill: #ffffff } .grid { stroke: #d5dbe1; stroke-width: 1 }
  .limit { stroke: #c0392b; stroke-width: 1.5; stroke-dasharray: 6 4 } .warning { fill: #c0392b }
  .too-many { fill: #c0392b } .bound { stroke: #1f2933; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .mode0 { fill: #d97706 } .mode1 { fill: #8896a5 } .mode2 { fill: #0e8f8a } .mode3 { fill: #2f6fd6 }
  .refused { stroke: #c0392b; stroke-width: 2 }
  .label { stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; paint-order: stroke }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaee } .quiet { fill: #9fb0bf } .paper { fill: #11181f } .grid { stroke: #2e3a45 }
    .too-many { fill: #ff8a7a } .bound { stroke: #e6eaee }
    .label { stroke: #11181f } .limit, .refused { stroke: #ff8a7a } .warning { fill: #ff8a7a }
    .mode0 { fill: #f0a54a } .mode1 { fill: #74828f } .mode2 { fill: #37c0b9 } .mode3 { fill: #74a7ff }
  }
"""


def svg_document(width: int, height: int, *, title: str, description: str, shapes: Sequence[str]) -> str:
    """Return a whole SVG file. Title and description are for screen readers."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title description">'
    )
    about = (
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
    )
    return "\n".join([head, *about, svg_rect(0, 0, width, height, "paper"), *shapes, "</svg>"]) + "\n"


def svg_text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor={quoteattr(anchor)} class={quoteattr(kind)}>'
        f"{escape(words)}</text>"
    )


def svg_rect(x: float, y: float, width: float, height: float, kind: str, *, about: str = "") -> str:
    """Return a rectangle; a browser shows `about` as a tooltip."""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class={quoteattr(kind)}'
    return f"{shape}><title>{escape(about)}</title></rect>" if about else f"{shape}/>"


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class={quoteattr(kind)}/>'


READABLE = 0o644


def reserve(path: Path, option: str = "--svg") -> None:
    """Raise BadInputError that names the option if no file can be saved there. Leaves nothing behind."""
    if path.is_dir():
        raise BadInputError(f"{option}: {path} is a folder: give the name of a file in it")
    if path.suffix.lower() != ".svg":
        raise BadInputError(f"{option}: {path} is not named as a chart: give a name that ends with .svg")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tidegate-"):
            pass
    except OSError as error:
        why = (error.strerror or "unknown").lower()
        raise BadInputError(
            f"{option}: {path} cannot be written ({why}): choose a folder that exists and is yours"
        ) from error


def save(path: Path, document: str) -> None:
    """Save a chart as a whole, replacing a file that is there."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".tidegate-", encoding="utf-8", delete=False
    ) as file:
        file.write(document)
    os.chmod(file.name, READABLE)  # noqa: PTH101  (a name, no path)
    Path(file.name).replace(path)
