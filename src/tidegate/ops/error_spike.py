"""Error spikes: many errors of Tidegate, or of the handlers of a bot library, within a minute."""

import logging
import threading
from collections import Counter, deque
from typing import Final

from tidegate.clock import Clock
from tidegate.failure import scrub
from tidegate.incidents import Incident, IncidentLog
from tidegate.scrubber import LOGGERS

SPIKE_SECONDS: Final = 60.0
LONGEST_TEXT: Final = 150  # characters
# Loggers by which bot libraries report an error of a handler that nothing else has handled.
LIBRARY_LOGGERS: Final = ("aiogram.event", "telegram.ext.Application")


class ErrorSpikes(logging.Filter):
    """Counts records of level ERROR and above of some loggers. Lets every record pass.

    It is a filter and no handler: with a handler, Python would no longer print the lines of a program that
    has not configured its logging.
    """

    def __init__(self, incidents: IncidentLog, clock: Clock, limit: int) -> None:
        super().__init__()
        self._incidents = incidents
        self._clock = clock
        self._lock = threading.Lock()
        self._errors: deque[tuple[float, str]] = deque(maxlen=limit + 1)  # the last ones

    def start(self) -> None:
        for name in (*LOGGERS, *LIBRARY_LOGGERS):
            logging.getLogger(name).addFilter(self)

    def stop(self) -> None:
        for name in (*LOGGERS, *LIBRARY_LOGGERS):
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            self._note(_kind_of(record))
        return True

    def _note(self, kind: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._errors.append((now, kind))
            first = self._errors[0][0]
            if len(self._errors) < (self._errors.maxlen or 0) or now - first > SPIKE_SECONDS:
                return
            [(most, times)] = Counter(kind for _, kind in self._errors).most_common(1)
            number = len(self._errors)
            self._errors.clear()  # the next spike is told after as many errors again
        text = f"{number} errors within {max(1, round(now - first))} s, most often ({times} times): {most}"
        self._incidents.note(
            Incident(kind="error_spike", text=text, group="error_spike", seconds=now - first)
        )


def _kind_of(record: logging.LogRecord) -> str:
    """Errors are of one kind if they have the same text and exception, whatever their numbers are."""
    error = record.exc_info[1] if record.exc_info else None
    text = str(record.msg) if record.args else record.getMessage()
    first = scrub(text.partition("\n")[0])[:LONGEST_TEXT]
    return first if error is None else f"{first} ({type(error).__name__})"
