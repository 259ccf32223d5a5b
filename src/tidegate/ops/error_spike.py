"""Error spikes: many errors of Tidegate, or of the handlers of a bot library, within a minute."""

import logging
import threading
from collections import Counter, deque
from typing import Final, NamedTuple

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
        self._errors: deque[_SeenError] = deque(maxlen=limit + 1)  # the last ones

    def start(self) -> None:
        for name in (*LOGGERS, *LIBRARY_LOGGERS):
            logging.getLogger(name).addFilter(self)

    def stop(self) -> None:
        for name in (*LOGGERS, *LIBRARY_LOGGERS):
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            self._note(_seen(record, self._clock.monotonic()))
        return True

    def _note(self, error: "_SeenError") -> None:
        now = error.at
        with self._lock:
            self._errors.append(error)
            first = self._errors[0].at
            if len(self._errors) < (self._errors.maxlen or 0) or now - first > SPIKE_SECONDS:
                return
            [(most, times)] = Counter(one.kind for one in self._errors).most_common(1)
            example = next(one.text for one in self._errors if one.kind == most)
            number = len(self._errors)
            self._errors.clear()  # the next spike is told after as many errors again
        text = f"{number} errors within {max(1, round(now - first))} s, most often ({times} times): {example}"
        self._incidents.note(
            Incident(kind="error_spike", text=text, group="error_spike", seconds=now - first)
        )


class _SeenError(NamedTuple):
    at: float  # monotonic
    kind: tuple[str, str, str]  # errors of one kind differ in their values only
    text: str


def _seen(record: logging.LogRecord, now: float) -> _SeenError:
    error = record.exc_info[1] if record.exc_info else None
    name = "" if error is None else type(error).__name__
    text = scrub(record.getMessage().partition("\n")[0])[:LONGEST_TEXT]
    return _SeenError(now, (record.name, str(record.msg), name), f"{text} ({name})" if name else text)
