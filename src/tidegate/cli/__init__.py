"""The command line: `tidegate`."""

import io
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code: 0, 1 if something is wrong, 2 for bad usage.

    Errors are one line on stderr. If the reader of the output has gone (`tidegate … | head -1`), it ends
    quietly with 141, as other commands do.
    """
    _open_closed_streams()
    _buffer_output()
    try:
        from tidegate.cli.app import run  # noqa: PLC0415  (Ctrl-C is quiet while this loads, too)

        return run(arguments)
    except KeyboardInterrupt:
        return 130


def _open_closed_streams() -> None:
    """Open a standard stream that is closed (`tidegate … >&-`): else a socket would get its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _buffer_output() -> None:
    """Buffer stdout despite PYTHONUNBUFFERED: Python loses the rest of what a terminal took in part."""
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        sys.stdout = os.fdopen(raw.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)
