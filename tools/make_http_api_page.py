"""Writes docs/reference/http-api.md from the OpenAPI document of the API.

Run it with `make http-api-page` after a change of a route.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tidegate.ops.api.document import example_of, openapi_document
from tidegate.ops.api.problems import KINDS, TYPE_PREFIX

Json = dict[str, Any]

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "http-api.md"
LONGEST_EXAMPLE: Final = 40  # lines
INTRODUCTION: Final = """\
# The HTTP API

Written by `make http-api-page` from the OpenAPI document, which the API itself serves at `/openapi.json`: do
not edit. [How to send over HTTP](../howto/send-over-http.md) shows the most common calls.

- **Access.** `Authorization: Bearer tg_…` with an API token ([how to give access](../howto/give-access.md)),
  or the cookie of a session and, for all but GET, its `X-CSRF-Token`. Only `/healthz`, `/readyz` and `/login`
  are open; webhooks and hooks have secrets of their own. Each operation needs the role that is named beside
  it, or a higher one. A token of one bot sees and changes what belongs to that bot; things of others are not
  found, and lists are without them. A viewer gets null for texts of messages.
- **Times** are seconds since the Unix epoch.
- **Lists** have at most 200 items; `next_cursor` is given as `cursor` for the next page, and null on the
  last. A page may be short, or even empty, and have a cursor: a request looks through a bounded number.
- **Idempotency-Key.** A request that changes something is done once for each key: repeated within 24 hours,
  it gets the first answer again, with the header `Idempotency-Replayed: true`. A key that was used for
  another request is refused (422). For messages it becomes the dedup key, if they have none.
- **Errors** are problem details (RFC 9457, `application/problem+json`): `type`, `title`, `status`, `detail`,
  and where it applies `retry_after` (seconds, also as the header `Retry-After`) and `errors` (fields, or
  lines).

| status | type | title |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    document = openapi_document()
    kinds = "".join(f"| {kind.status} | `{TYPE_PREFIX}{kind.name}` | {kind.title} |\n" for kind in KINDS)
    sections = [f"## {title.capitalize()}\n\n{''.join(parts)}" for title, parts in _by_tag(document).items()]
    return "\n".join([INTRODUCTION + kinds, *sections]).rstrip() + "\n"


def _by_tag(document: Json) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            part = _operation(method.upper(), path, operation, document["components"]["schemas"])
            found.setdefault(operation["tags"][0], []).append(part)
    return found


def _operation(method: str, path: str, operation: Json, schemas: Json) -> str:
    role = operation.get("x-role", "anybody")
    lines = [f"### {operation['summary']}", "", f"`{method} {path}` ({role})", ""]
    if operation.get("description"):
        lines += [" ".join(operation["description"].split()), ""]
    parameters = [one for one in operation.get("parameters", []) if one["name"] != "Idempotency-Key"]
    if parameters:
        lines += ["| parameter | in | what |", "|---|---|---|", *map(_parameter, parameters), ""]
    lines += _example("Body", operation.get("requestBody", {}).get("content", {}), schemas)
    for status, answer in operation["responses"].items():
        if status.startswith("2") and (shown := list(_example(status, answer.get("content", {}), schemas))):
            lines += shown
    others = ", ".join(status for status in operation["responses"] if not status.startswith("2"))
    return "\n".join([*lines, *([f"Other answers: {others}.", ""] if others else []), ""])


def _parameter(parameter: Json) -> str:
    needed = ", needed" if parameter.get("required") and parameter["in"] != "path" else ""
    schema = parameter.get("schema", {})
    bounds = [schema, *schema.get("anyOf", []), schema.get("items", {})]
    words = [str(parameter.get("description", ""))]
    words += [
        f"From {one['minimum']} to {one['maximum']}."
        for one in bounds
        if {"minimum", "maximum"} <= one.keys()
    ]
    if schema.get("default") is not None:
        words.append(f"Default: {schema['default']}.")
    return f"| `{parameter['name']}` | {parameter['in']}{needed} | {' '.join(filter(None, words))} |"


def _example(title: str, content: Json, schemas: Json) -> Iterator[str]:
    """Yield the lines of an example of each media type."""
    for media_type, one in content.items():
        example = one.get("example")
        if example is None:
            example = example_of(one.get("schema", {}), schemas)
        if example is None or example == "…":
            yield from (f"{title}: `{media_type}`.", "")
            continue
        text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        kind = "json" if media_type.endswith("json") and not isinstance(example, str) else "text"
        yield from (f"{title}, `{media_type}`:", "", f"```{kind}", text.rstrip("\n"), "```", "")


if __name__ == "__main__":
    PAGE.write_text(page())
