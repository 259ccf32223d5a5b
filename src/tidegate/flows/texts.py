"""The texts of a flow in several languages: a TOML file with a table for each language."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidegate.errors import BadInputError


class Texts(msgspec.Struct, frozen=True):
    """Texts by language and key. A key that a language lacks has the text of the default language."""

    languages: dict[str, dict[str, str]]
    default: str

    def find(self, key: str, language: str | None = None) -> str | None:
        """For `de-AT`, look in de-AT, de and the default language."""
        wanted = (language or "").lower()
        for name in (wanted, wanted.partition("-")[0], self.default):
            if (text := self.languages.get(name, {}).get(key)) is not None:
                return text
        return None

    def has(self, key: str) -> bool:
        return any(key in texts for texts in self.languages.values())

    def lacking(self, key: str) -> list[str]:
        """Return the languages that do not have the key."""
        return [language for language, texts in self.languages.items() if key not in texts]


def read_texts(path: Path | str) -> Texts:
    """Read a TOML file. Raises BadInputError that names the file and the place."""
    try:
        return texts_of(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, BadInputError) as error:
        raise BadInputError(f"{path}: {error}") from error


def texts_of(data: Mapping[str, Any]) -> Texts:
    """Read `{"default": "en", "en": {"hi": "Hello"}}`; nested tables make keys such as `buttons.buy`."""
    tables = {name.lower(): table for name, table in data.items() if name != "default"}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise BadInputError(f"{name} is no table: write texts below a language, such as [en]")
    if not tables:
        raise BadInputError("there are no texts: write them below a language, such as [en]")
    default = str(data.get("default", next(iter(tables)))).lower()
    if default not in tables:
        raise BadInputError(f"the default language {default} has no texts: there are {', '.join(tables)}")
    return Texts({name: dict(_flat(table, name)) for name, table in tables.items()}, default)


def _flat(table: Mapping[str, Any], place: str, before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}.{name}", f"{before}{name}.")
        elif isinstance(value, str):
            yield before + name, value
        else:
            raise BadInputError(f"{place}.{name} is no text: put it in quotes")
