"""The texts of the bot, in the language of the user."""

from pathlib import Path
from typing import Final

from tidegate import BadInputError, read_texts

OURS: Final = Path(__file__).with_name("texts.toml")


class Phrases:
    """`phrases("added", "de", name="Read")` returns a text in German, or else in the default language."""

    def __init__(self, path: Path | None) -> None:
        """Raises BadInputError if the file cannot be used, or fills in what there is not."""
        self._ours = read_texts(OURS)
        self._theirs = None if path is None else read_texts(path)
        for language, texts in ({} if self._theirs is None else self._theirs.languages).items():
            for key, text in texts.items():
                self._check(f"{path}: {language}.{key}", key, text)

    def __call__(self, key: str, language: str | None, /, **values: object) -> str:
        found = None if self._theirs is None else self._theirs.find(key, language)
        return str(found or self._ours.find(key, language)).format(**values)

    def _check(self, place: str, key: str, text: str) -> None:
        ours = self._ours.find(key)
        if ours is None:
            raise BadInputError(f"{place}: there is no such text, see {OURS.name}")
        try:
            text.format(**dict.fromkeys(_names_in(ours), ""))
        except (LookupError, ValueError, AttributeError) as error:
            raise BadInputError(f"{place}: only {_names_in(ours)} can be filled in ({error})") from None


def _names_in(text: str) -> list[str]:
    return [part.partition("}")[0] for part in text.split("{")[1:]]
