"""Writes docs/reference/settings.md from the settings: their names, defaults, bounds and texts.

Run it with `make settings-page` after a change of `settings.py`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from tidegate.model import DailyHours, Rate
from tidegate.settings import Settings

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
INTRODUCTION: Final = """\
# Settings

Written by `make settings-page` from `settings.py`: do not edit.

Each setting is a variable of the environment; an empty one counts as not set. Tidegate reads no `.env` file:
systemd (`EnvironmentFile=`), Docker Compose (`env_file:`) or your program does. A value that is not allowed
ends the process with a line that names the variable, never its value. A misspelt variable has no effect: the
log names it if it begins with `TIDEGATE_`, with the setting that may be meant, and so does `tidegate doctor`.

Set them for the process that they concern. Limits and attempts are those of the process that *sends*: the
worker, or the bot that the gate is attached to. A process that only puts messages need not have them.
"""
# The page that explains a section.
MORE: Final = {
    "Limits": "[Pacing](../explanation/pacing.md), and [limits of one bot](../explanation/pacing.md"
    "#limits-of-one-bot), which are set at run time.",
    "Attempts": "[What becomes of a message](../explanation/outbox.md).",
    "Store and bots": "[One file](../explanation/sqlite.md), [Redis](../explanation/redis.md),"
    " [keys](cli.md#bots-and-keys).",
    "Updates": "[How updates come in](../explanation/inbound.md),"
    " [how to keep a flooder out](../howto/keep-a-flooder-out.md).",
    "SQL database": "[What is kept in SQL](../explanation/database.md).",
    "Jobs": "[How to run heavy work elsewhere](../howto/run-heavy-work-elsewhere.md).",
    "History": "[How to keep a history of messages](../howto/keep-history.md).",
    "Watchdog": "[How to find what blocks the bot](../howto/find-what-blocks-the-bot.md).",
    "Log and metrics": "[The log](log-lines.md#formats) of Tidegate's own commands, not of a program with"
    " Tidegate inside; [metrics of several processes](../howto/watch-with-prometheus.md#several-processes).",
    "Sentry": "[What is reported](gate.md#sentry).",
}
_SECTION: Final = re.compile(r"# --- (.+) ---$")


class Setting(NamedTuple):
    name: str
    section: str
    text: str
    field: FieldInfo


def settings() -> Iterator[Setting]:
    """Yield the settings as the source has them. Raises ValueError for one without text or section."""
    source = inspect.getsource(Settings)
    headings = {
        number: found[1]
        for number, line in enumerate(source.splitlines(), 1)
        if (found := _SECTION.search(line.strip()))
    }
    declared = [node for parsed in ast.parse(source).body for node in ast.iter_child_nodes(parsed)]
    for place, node in enumerate(declared):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        above = [number for number in headings if number < node.lineno]
        match declared[place + 1]:
            case ast.Expr(value=ast.Constant(value=str(text))) if above:
                name = node.target.id
                yield Setting(name, headings[max(above)], " ".join(text.split()), Settings.model_fields[name])
            case _:
                raise ValueError(f"{node.target.id} has no text below it, or stands in no section")


def page() -> str:
    """Return the text of the page."""
    sections: dict[str, list[str]] = {}
    for one in settings():
        row = f"| `{one.name.upper()}` | {_default(one.field)} | {_bounds(one.field)} | {one.text} |\n"
        sections.setdefault(one.section, []).append(row)
    head = "| variable | default | allowed | |\n|---|---|---|---|\n"
    parts = [f"## {title}\n\n{MORE[title]}\n\n{head}{''.join(rows)}" for title, rows in sections.items()]
    return "\n".join([INTRODUCTION, *parts])


def _default(field: FieldInfo) -> str:
    match field.default:
        case None:
            return "not set"
        case bool(value):
            return str(int(value))
        case Rate(count=count, seconds=seconds):
            return f"`{count}/{seconds:g}`"
        case float(value):
            return f"{value:.15g}"
        case value:
            return f"`{value}`" if isinstance(value, str) else str(value)


def _bounds(field: FieldInfo) -> str:
    kinds: tuple[Any, ...] = (*_parts_of(field.annotation), *field.metadata)
    bounds = [bound for one in kinds for bound in getattr(one, "metadata", [one])]
    low = next((f"{bound.ge:g}" for bound in bounds if isinstance(bound, Ge)), None)
    above = next((f"{bound.gt:g}" for bound in bounds if isinstance(bound, Gt)), None)
    high = next((f"{bound.le:,.0f}" for bound in bounds if isinstance(bound, Le)), None)
    first = f"above {above}" if above else low
    if first and high:
        return f"{first} to {high}" if low else f"{first}, up to {high}"
    if first:
        return first
    names = " ".join(getattr(one, "__name__", "") for one in (field.annotation, *kinds))
    if "bool" in names:
        return "0, 1"
    if Rate.__name__ in names:
        return "calls/seconds"
    return "hours" if DailyHours.__name__ in names else ""


def _parts_of(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401  (any type)
    """Return the members of a union, and what Annotated adds to them."""
    return tuple(
        part
        for member in getattr(annotation, "__args__", ())
        for part in (member, getattr(member, "__origin__", None), *getattr(member, "__metadata__", ()))
    )


if __name__ == "__main__":
    PAGE.write_text(page())
