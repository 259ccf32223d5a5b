"""From what was written on the command line to a mailing. Whatever can be refused at once is refused here."""

import re
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tidegate.audience.mailing import Mailing
from tidegate.audience.source import Source
from tidegate.audience.template import ParseMode
from tidegate.cli.broadcast.place import check_place
from tidegate.cli.sending.fields import parameter
from tidegate.cli.times import duration
from tidegate.errors import BadInputError
from tidegate.settings import Settings

_NAME = re.compile(r"[\w.-]{1,64}")
_ELSEWHERE: Final = {
    "text": "use --text, --template or a field text",
    "parse_mode": "use --parse-mode",
    "dedup_for": "use --remember",
}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """As it was written."""

    file: str
    text: str | None = None
    template: str | None = None
    parse_mode: ParseMode | None = None
    params: list[str] = []
    skip_bad: bool = False
    allow_duplicates: bool = False
    dry_run: bool = False
    name: str | None = None
    priority: Literal["high", "normal", "low"] = "low"
    remember: str = "7d"
    wait: bool = True
    report: str | None = None
    bot: int | None = None
    store: str | None = None
    as_json: bool = False

    def check(self) -> None:
        """Raises BadInputError that names the option."""
        self.remembered()
        if self.text is not None and self.template is not None:
            raise BadInputError("--text and --template say the same thing: give one of them")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise BadInputError(
                f"--name: {self.name!r} is no name: write up to 64 letters, digits, dots and dashes"
            )
        if self.report is not None:
            read = [self.file, *([self.template] if self.template is not None else [])]
            store = self.store or Settings.read().tidegate_store
            check_place(Path(self.report), read=read, store=store)

    def remembered(self) -> float:
        """Seconds."""
        seconds = duration("--remember", self.remember)
        if seconds <= 0:
            raise BadInputError("--remember: give more than 0")
        return seconds

    def mailing(self, source: Source) -> Mailing:
        option = "--text" if self.text is not None else "--template"
        try:
            return Mailing(
                source,
                template=self._template(),
                parse_mode=self.parse_mode,
                params=dict(map(_parameter, self.params)),
                duplicates=self.allow_duplicates,
            )
        except BadInputError as error:
            text = str(error)
            raise BadInputError(text if text.startswith("--") else f"{option}: {text}") from error

    def _template(self) -> str | None:
        if self.template is None:
            _check_unicode(self.text or "")
            return self.text
        try:
            return Path(self.template).read_text("utf-8-sig").rstrip("\n")
        except UnicodeDecodeError:
            raise BadInputError(f"{self.template} is not written in UTF-8: save it as UTF-8") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise BadInputError(f"cannot read {self.template}: {reason.lower()}") from error


def _check_unicode(text: str) -> None:
    """Bytes that are no UTF-8 come from the command line as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(
            "what was written is no text in UTF-8: write it in a file, for --template"
        ) from None


def _parameter(text: str) -> tuple[str, Any]:
    name, value = parameter(text)
    if name in _ELSEWHERE:
        raise BadInputError(f"--param: {name} is not given this way: {_ELSEWHERE[name]}")
    try:
        msgspec.msgpack.encode((name, value))  # as the store keeps it
    except OverflowError:
        raise BadInputError(f"--param: {name!r} has a number that is too large: quote it as text") from None
    except ValueError:
        raise BadInputError(f"--param: {name!r} is no text in UTF-8") from None
    return name, value
