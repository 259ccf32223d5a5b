"""The log of Tidegate's own commands: lines for a person at a terminal, JSON lines for programs.

Commands that run for long log within `command_log`. Every record passes one formatter, whichever library
wrote it, and the formatter scrubs secrets. A program that uses Tidegate as a library has a log of its own:
nothing of this is installed there.
"""

import json
import logging
import math
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from rich.console import Console
from structlog.dev import ConsoleRenderer
from structlog.processors import JSONRenderer, format_exc_info
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from tidegate.scrubber import scrub_secrets
from tidegate.settings import Settings, log_misspelt_variables

# More of a library would be too much: at DEBUG, drivers of databases log each statement with its values.
LIBRARY_LEVEL: Final = logging.INFO
DEEPEST: Final = 6  # levels of a structured field; what is below is written as text
_NAMES: Final = ("time", "level", "logger", "message", "exception", "stack")  # of a line's own fields
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_UNWANTED: Final = frozenset({"color_message"})  # uvicorn's: the message again, with its own colours


@contextmanager
def command_log(settings: Settings) -> Iterator[None]:
    """Log to stderr while the body runs: everything from TIDEGATE_LOG_LEVEL on, of libraries from INFO on.

    Warnings of Python and exceptions that end a thread become log lines, too, and so pass the scrubber. A
    live view of the terminal stays whole: while it is drawn, Rich prints what is written to stderr above it.
    """
    handler = StderrHandler()
    handler.setFormatter(line_formatter(settings))
    root, ours = logging.getLogger(), logging.getLogger("tidegate")
    levels, hook = (root.level, ours.level), threading.excepthook
    level = logging.getLevelNamesMapping()[settings.tidegate_log_level]
    root.setLevel(max(level, LIBRARY_LEVEL))
    ours.setLevel(level)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread_end
    log_misspelt_variables()
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.captureWarnings(capture=False)
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


def line_formatter(settings: Settings | None = None) -> logging.Formatter:
    """Return the formatter of TIDEGATE_LOG_FORMAT, for a handler that writes to stderr."""
    wanted = (settings or Settings.read()).tidegate_log_format
    is_terminal = sys.stderr.isatty()
    if wanted == "json" or (wanted == "auto" and not is_terminal):
        return JsonLineFormatter()
    terminal = Console(stderr=True)  # knows NO_COLOR, and terminals without colours
    return TextLineFormatter(
        colours=is_terminal and terminal.color_system is not None and not terminal.no_color
    )


class StderrHandler(logging.Handler):
    """Writes to what is stderr at that moment, which a live view replaces while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        with suppress(OSError, ValueError):  # nobody reads stderr any more, or it is closed
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


class ScrubbedLineFormatter(ProcessorFormatter):
    """Formats a record of any logger as one line without secrets. It never raises.

    Python's own handlers print the arguments of a record that cannot be formatted, and its secrets with them.
    """

    def __init__(self, *renderers: Processor) -> None:
        super().__init__(
            foreign_pre_chain=[_take_formatted_traces], processors=[format_exc_info, _describe, *renderers]
        )

    def format(self, record: logging.LogRecord) -> str:
        try:
            return super().format(record)
        except Exception as error:  # noqa: BLE001  (whatever an argument's own methods do)
            place, kind = f"{record.pathname}:{record.lineno}", type(error).__name__
            said = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
            text = f"a log line at {place} cannot be written: {kind}: {said!r:.200}"
            known = {"name": record.name, "levelname": record.levelname, "created": record.created}
            return super().format(logging.makeLogRecord({**known, "msg": text}))


class JsonLineFormatter(ScrubbedLineFormatter):
    """One JSON object: `time` (ISO 8601, UTC), `level`, `logger`, `message`, the fields of `extra=`, and
    `exception`, a traceback as text.
    """

    def __init__(self) -> None:
        # Values are scrubbed before they are encoded: escapes would hide parts of a secret.
        super().__init__(_utc_time, _scrub_values, JSONRenderer(json.dumps, ensure_ascii=False))


class TextLineFormatter(ScrubbedLineFormatter):
    """The local time, the level, the message, its logger and fields; a traceback below it."""

    def __init__(self, *, colours: bool) -> None:
        renderer = ConsoleRenderer(
            colors=colours, pad_event_to=0, sort_keys=False, event_key="message", timestamp_key="time"
        )
        super().__init__(_local_time, _scrub_values, _make_printable, renderer)


def _take_formatted_traces(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Keep the stack, and the traceback of a record that was scrubbed by its logger: they are texts."""
    record: logging.LogRecord = line["_record"]
    if record.exc_text and not record.exc_info:
        line["exception"] = record.exc_text
    if stack := line.pop("stack_info", None):
        line["stack"] = stack
    return line


def _describe(_: WrappedLogger, level: str, line: EventDict) -> EventDict:
    """Bring the fields of a line into their order. One of `extra=` that has a name of ours gets a `_`."""
    record: logging.LogRecord = line.pop("_record")
    line.pop("_from_structlog")
    fields = {
        name: value for name, value in vars(record).items() if name not in _STANDARD and name[:1] != "_"
    }
    own = {name: line.pop(name, None) for name in ("exception", "stack")}
    message = str(line.pop("event", "")).rstrip("\n")
    given = {name: value for name, value in {**fields, **line}.items() if name not in _UNWANTED}
    return {
        "time": record.created,
        "level": record.levelname.lower() or level,
        "logger": record.name,
        "message": message,
        **{f"{name}_" if name in _NAMES else name: value for name, value in given.items()},
        **{name: value for name, value in own.items() if value is not None},
    }


def _utc_time(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    at = datetime.fromtimestamp(line["time"], UTC)
    line["time"] = at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    return line


def _local_time(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    line["time"] = datetime.fromtimestamp(line["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return line


def _scrub_values(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    return {scrub_text(name): scrub_value(value) for name, value in line.items()}


def scrub_value(value: object, depth: int = 1) -> object:
    """Return it as JSON can hold it, with every text scrubbed, keys too."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth < DEEPEST and isinstance(value, Mapping):
        return {scrub_text(name): scrub_value(item, depth + 1) for name, item in value.items()}
    if depth < DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [scrub_value(item, depth + 1) for item in value]
    return scrub_text(value)


def scrub_text(value: object) -> str:
    """Return its text without secrets, and without halves of characters, which no stream takes."""
    text = scrub_secrets(str(value))
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _make_printable(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Control characters, which an answer of another server may hold, would steer the terminal."""
    return {name: _printable(value) if isinstance(value, str) else value for name, value in line.items()}


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def _log_thread_end(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is None or isinstance(ended.exc_value, SystemExit):
        return
    trace: tuple[type[BaseException], BaseException, TracebackType | None]
    trace = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
    logging.getLogger("tidegate").error("%s has ended with an error", name, exc_info=trace)
