"""The texts of the bot, in the language of the user."""

from pathlib import Path
from string import Formatter
from typing import Final

from tidegate import BadInputError, read_texts

OURS: Final = Path(__file__).with_name("texts.toml")


class LabelTexts:
    """`texts("taken", "de", order="A1B2")` returns a text in German, or else in the default language."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises BadInputError if the file cannot be used, or fills in what there is not."""
        self._ours = read_texts(OURS)
        self._theirs = self._ours if path is None else read_texts(path)
        for language, texts in self._theirs.languages.items():
            for key, text in texts.items():
                self._check(f"{path}: {language}.{key}", key, text)

    def __call__(self, key: str, language: str | None, /, **values: object) -> str:
        return str(self._theirs.find(key, language) or self._ours.find(key, language)).format(**values)

    def in_all_languages(self, key: str) -> dict[str, str]:
        """Return one text by language, as a throttle takes it."""
        known = {
            language: table[key]
            for texts in (self._ours, self._theirs)
            for language, table in texts.languages.items()
            if key in table
        }
        return known | {"default": known[self._ours.default]}

    def _check(self, place: str, key: str, text: str) -> None:
        ours = self._ours.find(key)
        if ours is None:
            raise BadInputError(f"{place}: there is no such text, see {OURS.name}")
        try:
            unknown = _names_in(text) - _names_in(ours)
        except ValueError as error:
            raise BadInputError(f"{place}: {error}") from None
        if unknown:
            raise BadInputError(f"{place}: only {sorted(_names_in(ours))} can be filled in")


def _names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}
