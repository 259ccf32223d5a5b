"""The log of Tidegate's own commands: its formats, and that no line shows a secret, whoever wrote it."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from tidegate import Tidegate
from tidegate.cli import terminal
from tidegate.errors import BadInputError
from tidegate.ops.log_format import (
    JsonLineFormatter,
    StderrHandler,
    TextLineFormatter,
    command_log,
    line_formatter,
)
from tidegate.scrubber import hide
from tidegate.settings import Settings

SECRET = "AAEEqwertyuiopasdfghjklzxcvbnm-_123"
TOKEN = f"42:{SECRET}"
HOOK_SECRET = 'whsec_"quoted"\\and_long'
LIBRARIES = ("uvicorn.error", "aiohttp.client", "sqlalchemy.engine", "asyncio", "shop")

Capture = pytest.CaptureFixture[str]


def settings(**values: Any) -> Settings:  # noqa: ANN401  (of any field)
    return Settings().model_copy(update={f"tidegate_{name}": value for name, value in values.items()})


@contextmanager
def only_handler(log_format: str) -> Iterator[None]:
    """A log without the handlers of pytest: they fail a test that logs what cannot be formatted."""
    root = logging.getLogger()
    others, root.handlers[:] = list(root.handlers), []
    try:
        with command_log(settings(log_format=log_format)):
            yield
    finally:
        root.handlers[:] = others


@pytest.fixture
def json_log() -> Iterator[None]:
    with command_log(settings(log_format="json")):
        yield


def lines(capsys: Capture) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""  # stdout is for results
    return [json.loads(line) for line in err.splitlines()]


def test_a_json_line_has_the_time_in_utc_level_logger_message_and_fields(capsys: Capture) -> None:
    record = logging.makeLogRecord({
        "name": "tidegate.upstream",
        "levelname": "INFO",
        "created": 1_790_000_000.25,
        "msg": "%s in %.1f s",
        "args": ("GET", 0.5),
        "exchange": {"status": 200, "seconds": float("inf"), "tags": ("a", 1)},
    })  # fmt: skip

    assert json.loads(JsonLineFormatter().format(record)) == {
        "time": "2026-09-21T14:13:20.250Z",
        "level": "info",
        "logger": "tidegate.upstream",
        "message": "GET in 0.5 s",
        "exchange": {"status": 200, "seconds": None, "tags": ["a", 1]},
    }
    assert capsys.readouterr().err == ""


def test_a_command_that_runs_for_long_names_a_misspelt_setting(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_HISTROY", "off")
    with command_log(settings(log_format="json")):
        pass

    [line] = lines(capsys)
    meant = "TIDEGATE_HISTROY is no setting and has no effect: TIDEGATE_HISTORY may be meant"
    assert (line["level"], line["message"]) == ("warning", meant)


@pytest.mark.usefixtures("json_log")
def test_an_exception_is_a_text_in_one_line(capsys: Capture) -> None:
    try:
        int("x")
    except ValueError:
        logging.getLogger("shop").exception("it failed", stack_info=True)

    [line] = lines(capsys)
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("ValueError: invalid literal for int() with base 10: 'x'")
    assert "test_an_exception_is_a_text_in_one_line" in line["stack"]


@pytest.mark.usefixtures("json_log")
def test_fields_with_names_of_ours_or_of_no_use_do_not_replace_anything(capsys: Capture) -> None:
    extra = {"time": "noon", "logger": "mine", "color_message": "\x1b[1mx", "size": 3}
    logging.getLogger("shop").info("hello", extra=extra)

    [line] = lines(capsys)
    assert (line["logger"], line["message"], line["size"]) == ("shop", "hello", 3)
    assert (line["time_"], line["logger_"]) == ("noon", "mine")
    assert "color_message" not in line


def test_a_line_for_people_has_the_time_and_its_traceback_below() -> None:
    known = {"name": "shop", "levelname": "ERROR", "created": 0.0, "size": 3}
    error = ValueError(f"not a number: '{TOKEN}'")
    trace = (type(error), error, None)
    record = logging.makeLogRecord({**known, "msg": "order %s failed", "args": (7,), "exc_info": trace})

    first, *rest = TextLineFormatter(colours=False).format(record).splitlines()
    assert first[10:].split("]", 1)[1] == " order 7 failed [shop] size=3"
    assert "[error " in first
    assert rest == ["ValueError: not a number: '42:…'"]


def test_colours_and_only_those_steer_the_terminal() -> None:
    record = logging.makeLogRecord({"name": "shop", "levelname": "INFO", "msg": "said \x1b[2J\r"})

    assert "\x1b" not in TextLineFormatter(colours=False).format(record)
    coloured = TextLineFormatter(colours=True).format(record)
    assert r"said \x1b[2J\r" in coloured
    assert "\x1b[" in coloured


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_line_of_any_library_shows_a_secret(
    library: str, log_format: str, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    hide(HOOK_SECRET)
    log = logging.getLogger(library)
    with caplog.at_level("WARNING", library), only_handler(log_format):
        log.warning("in an address: https://api.telegram.org/bot%s/getMe", TOKEN)
        log.warning("in an object: %r", {"url": f"redis://:{SECRET}@host/0?password={SECRET}"})
        log.warning("in a field", extra={"request": {"headers": [f"Bearer {SECRET}"], TOKEN: HOOK_SECRET}})
        log.warning(HOOK_SECRET)
        log.warning("%d does not fit", TOKEN)
        error = OSError(f"cannot connect to {TOKEN}", HOOK_SECRET)
        log.error("in the arguments of an exception", exc_info=error)

    written = capsys.readouterr().err
    assert written.count("42:…") == 3
    assert SECRET not in written
    assert "quoted" not in written
    if log_format == "json":
        assert len([json.loads(line) for line in written.splitlines()]) == 6


@pytest.mark.usefixtures("json_log")
def test_warnings_and_exceptions_that_end_a_thread_are_lines_too(capsys: Capture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn(f"an old way to call {TOKEN}", stacklevel=1)
    thread = threading.Thread(target=int, args=(TOKEN,), name="reader")
    thread.start()
    thread.join()

    warned, ended = lines(capsys)
    assert (warned["logger"], warned["level"]) == ("py.warnings", "warning")
    assert "an old way to call 42:…" in warned["message"]
    assert ended["message"] == "the thread reader has ended with an error"
    assert ended["exception"].endswith("'42:…'")


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError(TOKEN)

    __repr__ = __str__


def test_a_record_that_cannot_be_formatted_is_told_without_its_arguments(capsys: Capture) -> None:
    log = logging.getLogger("shop")
    with only_handler("json"):
        log.info("%s", Unspeakable())
        log.info(Unspeakable())
        log.info("in a field", extra={"what": Unspeakable()})

    texts = [line["message"] for line in lines(capsys)]
    assert len(texts) == 3
    assert all("test_log_format.py" in text and "RuntimeError" in text for text in texts)


@pytest.mark.usefixtures("json_log")
def test_half_a_character_can_be_written() -> None:
    # Not logged: pytest would keep the record, which xdist cannot send.
    record = logging.makeLogRecord({"name": "shop", "msg": "a proxy said %s", "args": ("\ud83d oops",)})

    line = line_formatter(settings(log_format="json")).format(record)

    assert json.loads(line)["message"] == "a proxy said \\ud83d oops"


def test_a_terminal_gets_text_anything_else_json_and_a_setting_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(log_format: str, *, at_terminal: bool) -> type[logging.Formatter]:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
        return type(line_formatter(settings(log_format=log_format)))

    assert chosen("auto", at_terminal=True) is chosen("text", at_terminal=False) is TextLineFormatter
    assert chosen("auto", at_terminal=False) is chosen("json", at_terminal=True) is JsonLineFormatter


def test_the_level_is_of_tidegate_and_libraries_never_log_debug(capsys: Capture) -> None:
    with command_log(settings(log_format="json", log_level="DEBUG")):
        logging.getLogger("tidegate.upstream").debug("a request")
        logging.getLogger("aiosqlite").debug("a statement with its values")
    with command_log(settings(log_format="json", log_level="WARNING")):
        logging.getLogger("tidegate.upstream").info("too much")
        logging.getLogger("aiohttp").info("too much")
        logging.getLogger("aiohttp").warning("a warning")

    assert [line["message"] for line in lines(capsys)] == ["a request", "a warning"]


@pytest.mark.parametrize("at_terminal", [True, False])
def test_lines_come_above_a_live_view_and_those_for_a_file_go_there(
    at_terminal: bool,  # noqa: FBT001
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(terminal, "ScrubbedConsole", lambda: console)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
    with command_log(settings(log_format="text")), terminal.drawing(lambda: "the view") as draw:
        draw()
        logging.getLogger("tidegate").warning("a line")

    shown, filed = screen.getvalue(), capsys.readouterr().err
    assert ("a line" in shown, "a line" in filed) == (at_terminal, not at_terminal)
    assert shown.find("a line") < shown.rindex("the view")


def test_a_stderr_that_is_gone_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    with command_log(settings(log_format="json")):
        monkeypatch.setattr(sys, "stderr", closed)
        logging.getLogger("tidegate").warning("to nobody")
        monkeypatch.undo()


def test_everything_is_as_before_when_the_command_has_ended() -> None:
    root, ours = logging.getLogger(), logging.getLogger("tidegate")
    before = (list(root.handlers), root.level, ours.level, threading.excepthook)
    with command_log(settings(log_level="DEBUG")):
        assert isinstance(root.handlers[-1], StderrHandler)
    assert (list(root.handlers), root.level, ours.level, threading.excepthook) == before


async def test_a_gate_in_a_program_of_ones_own_adds_no_handler_and_changes_no_level() -> None:
    loggers = [logging.getLogger(), logging.getLogger("tidegate"), logging.getLogger("uvicorn")]
    before = [(list(log.handlers), log.level) for log in loggers]
    async with Tidegate("memory://") as gate:
        gate.add_bot(TOKEN)
        await gate.send(chat_id=1, text="hello")

    assert [(list(log.handlers), log.level) for log in loggers] == before


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TIDEGATE_LOG_LEVEL", "loud", "write DEBUG, INFO, WARNING, ERROR or CRITICAL"),
        ("TIDEGATE_LOG_FORMAT", "xml", "write auto, text or json"),
    ],
)
def test_an_unknown_level_or_format_is_refused_with_those_that_are_known(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadInputError, match=f"{variable} is not known: {said}"):
        Settings.read()


def test_levels_and_formats_are_read_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_LEVEL", "warning")
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "JSON")
    read = Settings.read()
    assert (read.tidegate_log_level, read.tidegate_log_format) == ("WARNING", "json")
