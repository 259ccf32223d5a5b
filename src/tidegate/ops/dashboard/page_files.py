"""The files of the dashboard: templates, and what browsers load beside a page."""

import functools
import hashlib
from importlib import resources
from typing import Any, Final

import jinja2

from tidegate.inbound.webhook_request import Send
from tidegate.ops.dashboard.formats import FILTERS

STATIC: Final = "/static/"
# Everything comes from this address, and no page holds a script or style of its own: markup in a name or
# a text could run nothing even if it were not escaped.
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": CONTENT_POLICY,
    "referrer-policy": "same-origin",
}
_TYPES: Final = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FOLDER: Final = resources.files("tidegate.ops.dashboard")
# Read when this is imported, so that no request waits for a disk.
_TEMPLATES: Final = {file.name: file.read_text("utf-8") for file in (_FOLDER / "templates").iterdir()}
_STATIC: Final = {file.name: file.read_bytes() for file in (_FOLDER / "static").iterdir()}


@functools.cache
def templates() -> jinja2.Environment:
    """Return the templates. Everything that they show is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(_TEMPLATES),
        autoescape=True,
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    environment.globals["static"] = _address_of
    # Not imported by each template: `render_live` runs the code of a block alone.
    environment.globals["ui"] = environment.get_template("macros.html").module
    environment.globals["template"] = lambda name: environment.get_template(name).module
    return environment


def render(name: str, context: dict[str, Any]) -> str:
    return templates().get_template(name).render(context)


def render_live(name: str, context: dict[str, Any]) -> str:
    """Render the block `live` of a template alone."""
    template = templates().get_template(name)
    return "".join(template.blocks["live"](template.new_context(context)))


def _address_of(name: str) -> str:
    """Return the address of a file: another one for each version, so that browsers may keep it for ever."""
    digest = hashlib.sha256(_STATIC[name]).hexdigest()[:12]
    return f"{STATIC}{name}?v={digest}"


async def send_static(path: str, send: Send) -> bool:
    """Answer with a file, which holds nothing secret; return False if there is none of this name."""
    name = path.removeprefix(STATIC)
    content = _STATIC.get(name)
    if content is None:
        return False
    headers = [
        (b"content-type", _TYPES[name.rpartition(".")[2]]),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"public, max-age=31536000, immutable"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
    return True
