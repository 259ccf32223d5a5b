"""The command line: `tidegate`."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0, 1 if it found something wrong, 2 for what was asked wrongly.

    Whatever was asked wrongly is answered with one line on stderr.
    """
    try:
        from tidegate.cli.app import run  # noqa: PLC0415  (Ctrl-C while this loads is quiet, too)

        return run(arguments)
    except KeyboardInterrupt:
        return 130
