"""Writes the methods and parameters of the Bot API as Python modules, from the types of aiogram.

Run it with `make bot-api` after an update of aiogram. Tidegate itself does not import aiogram for this.
"""

import inspect
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Final

import aiogram
from aiogram import methods, types
from aiogram.client.default import Default

OUTBOX: Final = Path(__file__).parents[1] / "src" / "tidegate" / "outbox"
WIDTH: Final = 110
PLAIN_TYPES: Final = (bool, float, int, str)  # others may be written in several ways: dicts, objects, files
CHAT_ID: Final = "chat_id"


def sources() -> dict[Path, str]:
    """Return the text of each module."""
    return {
        OUTBOX / "bot_api_methods.py": parameters_module(parameters()),
        OUTBOX / "telegram_fields.py": fields_module(field_types()),
        OUTBOX / "bot_api_results.py": results_module(results()),
    }


def method_types() -> Iterator[type[methods.TelegramMethod[Any]]]:
    """Yield aiogram's types of methods."""
    root = methods.TelegramMethod
    for name in dir(methods):
        method = getattr(methods, name)
        if inspect.isclass(method) and issubclass(method, root) and method is not root:
            yield method


def parameters() -> dict[str, list[str]]:
    """Return the names of the parameters of each method."""
    found = {method.__api_method__: sorted(method.model_fields) for method in method_types()}
    return dict(sorted(found.items()))


def field_types() -> dict[str, str]:
    """Return the type of each parameter of the methods that have a chat; Any if there are several."""
    found: dict[str, set[str]] = {}
    for method in method_types():
        if CHAT_ID in method.model_fields:
            for name, field in method.model_fields.items():
                found.setdefault(name, set()).add(plain_type(field.annotation))
    del found[CHAT_ID]
    return {name: kinds.pop() if len(kinds) == 1 else "Any" for name, kinds in sorted(found.items())}


def results() -> dict[str, list[str]]:
    """Return the methods that have a chat, by the form of their result; without those that ask something."""
    forms: dict[object, str] = {
        bool: "true",
        types.Message: "message",
        types.Message | bool: "message",  # True for a message of an inline query, which has no chat
        list[types.Message]: "messages",
        types.MessageId: "id",
        list[types.MessageId]: "ids",
    }
    found: dict[str, list[str]] = {form: [] for form in forms.values()}
    for method in method_types():
        if CHAT_ID in method.model_fields and (form := forms.get(method.__returning__)) is not None:
            found[form].append(method.__api_method__)
    return {form: sorted(names) for form, names in found.items()}


def plain_type(annotation: object) -> str:
    """Return the type of a value that can be written in one way only; else Any."""
    is_union = typing.get_origin(annotation) in {UnionType, typing.Union}
    kinds = set(typing.get_args(annotation) if is_union else (annotation,)) - {type(None), Default}
    only = kinds.pop() if len(kinds) == 1 else None
    return f"{only.__name__} | None" if isinstance(only, type) and only in PLAIN_TYPES else "Any"


def parameters_module(known: dict[str, list[str]]) -> str:
    entries = "\n".join(_entry(method, " ".join(names)) for method, names in known.items())
    return f'''"""{_title("The methods of the Bot API")}"""

from typing import Final

PARAMETERS: Final = {{  # separated by spaces: of most methods they are never needed
{entries}
}}
'''


def fields_module(types_of: dict[str, str]) -> str:
    fields = "\n".join(f"    {name}: {kind}" for name, kind in types_of.items())
    return f'''"""{_title("Types of parameters of the Bot API")}"""

from typing import Any, TypedDict


class TelegramFields(TypedDict, total=False):
    """Every parameter of the methods that have a chat_id, except that."""

{fields}
'''


def results_module(known: dict[str, list[str]]) -> str:
    entries = "\n".join(_entry(form, " ".join(names)) for form, names in known.items())
    return f'''"""{_title("Results of methods of the Bot API with a chat")}"""

from typing import Final

RESULTS: Final = {{  # methods, separated by spaces, by the form of their result
{entries}
}}
'''


def _title(subject: str) -> str:
    return f"{subject}, version {aiogram.__api_version__}. Written by `make bot-api`: do not edit."


def _entry(method: str, names: str) -> str:
    """Return an entry of the table as the formatter would write it."""
    line = f'    "{method}": "{names}",'
    if len(line) <= WIDTH:
        return line
    room = WIDTH - len('        ""')
    parts = [names] if len(names) <= room else textwrap.wrap(names, room - 1)
    lines = [f'        "{part} "' for part in parts[:-1]] + [f'        "{parts[-1]}"']
    return "\n".join([f'    "{method}": (', *lines, "    ),"])


if __name__ == "__main__":
    for path, text in sources().items():
        path.write_text(text)
