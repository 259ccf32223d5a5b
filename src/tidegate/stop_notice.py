"""The log line of a stop that has to wait."""

import logging


def log_wait(log: logging.Logger, seconds: float, *, handlers: int = 0, calls: int = 0) -> None:
    """Say what is waited for, and how long at most: whoever pressed Ctrl-C sits in front of it."""
    things = [
        f"{count} {one if count == 1 else many}"
        for count, one, many in (
            (handlers, "handler", "handlers"),
            (calls, "call in flight", "calls in flight"),
        )
        if count
    ]
    if things and seconds > 0:
        log.warning("stopping: waiting up to %g s for %s", seconds, " and ".join(things))
