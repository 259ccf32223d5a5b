"""Ends a process that is to end at once, though something of the application does not end."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final, NoReturn

log = logging.getLogger("tidegate")

EXIT_AFTER: Final = 1.0  # seconds that the process has to end in good order
CHECK_INTERVAL: Final = 0.5  # seconds
CHECKS: Final = 60
INTERRUPTED: Final = 128 + signal.SIGINT  # exit code
# Where the main thread waits for tasks, at the end of asyncio.run, and for threads, at its own end.
LAST_WAITS: Final = {("runners.py", "close"), ("threading.py", "_shutdown")}


def raise_exit() -> NoReturn:
    """Called by the event loop, so it ends whatever runs in that."""
    raise SystemExit(INTERRUPTED)


def exit_for_sure() -> None:
    """End the process once its program is over for EXIT_AFTER seconds, and only threads or tasks keep it.

    A program that goes on, as a notebook does, is left alone.
    """
    threading.Thread(target=_watch, name="tidegate: exit", daemon=True).start()


def _watch() -> None:
    never, seen = threading.Event(), 0
    for _ in range(CHECKS):
        never.wait(CHECK_INTERVAL)
        seen = seen + 1 if _is_program_over() else 0
        if seen * CHECK_INTERVAL > EXIT_AFTER:
            log.warning("the process ends without a thread or a task of the application that does not end")
            os._exit(INTERRUPTED)


def _is_program_over() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  (the only way)
    while frame is not None:
        if (Path(frame.f_code.co_filename).name, frame.f_code.co_name) in LAST_WAITS:
            return True
        frame = frame.f_back
    return False
