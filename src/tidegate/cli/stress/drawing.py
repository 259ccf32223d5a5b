"""Where a chart is saved: whole or not at all, and a place that cannot be written is known before the run."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidegate.cli.stress.chart import chart
from tidegate.errors import BadInputError
from tidegate.sim.polling import Result, Scenario

READABLE = 0o644


def reserve(path: Path) -> None:
    """Raises BadInputError if nothing can be saved there. Leaves nothing behind."""
    if path.is_dir():
        raise BadInputError(f"--svg: {path} is a folder: give the name of a file in it")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tidegate-"):
            pass
    except OSError as error:
        why = (error.strerror or "unknown").lower()
        raise BadInputError(
            f"--svg: {path} cannot be written ({why}): choose a folder that exists and is yours"
        ) from error


def save(path: Path, results: Sequence[Result], scenario: Scenario) -> None:
    """Replaces what is there."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".tidegate-", encoding="utf-8", delete=False
    ) as file:
        file.write(chart(results, scenario))
    os.chmod(file.name, READABLE)  # noqa: PTH101  (a name, no path)
    Path(file.name).replace(path)
