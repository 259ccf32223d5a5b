"""The command line: `tidegate`."""

import io
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 if it found something wrong, 2 for what was asked wrongly.

    Whatever was asked wrongly is answered with one line on stderr. Where nobody reads the output any more
    (`tidegate … | head -1`) it ends quietly with 141, as a shell shows it of other commands.
    """
    _open_what_is_closed()
    _buffer_output()
    try:
        from tidegate.cli.app import run  # noqa: PLC0415  (Ctrl-C while this loads is quiet, too)

        return run(arguments)
    except KeyboardInterrupt:
        return 130


def _open_what_is_closed() -> None:
    """Started without a standard stream (`tidegate … >&-`), a socket would get its number and its text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _buffer_output() -> None:
    """With PYTHONUNBUFFERED, Python loses the rest of what a terminal took only in part, as after Ctrl-C."""
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        sys.stdout = os.fdopen(raw.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)
