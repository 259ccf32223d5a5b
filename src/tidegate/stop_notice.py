"""The log line of a stop that has to wait."""

import logging


def log_wait(
    log: logging.Logger,
    seconds: float | None,
    *,
    handlers: int = 0,
    tasks: int = 0,
    updates: int = 0,
    calls: int = 0,
) -> None:
    """Say what is waited for, and how long at most: whoever pressed Ctrl-C sits in front of it.

    `seconds`: None if the bot library waits, and has no bound.
    """
    things = [
        f"{count} {one if count == 1 else many}"
        for count, one, many in (
            (handlers, "handler", "handlers"),
            (tasks, "task", "tasks"),
            (updates, "update in the queue", "updates in the queue"),
            (calls, "call in flight", "calls in flight"),
        )
        if count
    ]
    if not things:
        return
    if seconds is None:
        log.warning(
            "stopping: waiting for %s, however long that takes; Ctrl-C again ends at once", ", ".join(things)
        )
    elif seconds > 0:
        log.warning("stopping: waiting up to %g s for %s", seconds, ", ".join(things))
