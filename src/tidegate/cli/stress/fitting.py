"""A table where there is room for it, the same in blocks where there is not: a number is never cut."""

from collections.abc import Mapping

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

ENDLESS = 10_000  # columns: wider than any table


class Fitting:
    """`blocks` say what `table` says, without its width."""

    def __init__(self, table: Table, blocks: RenderableType) -> None:
        self._table, self._blocks = table, blocks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=ENDLESS)
        needed = Measurement.get(console, endless, self._table).maximum
        yield self._table if needed <= options.max_width else self._blocks


def block(heading: str, cells: Mapping[str, Text]) -> RenderableType:
    """Names with their values, as many beside each other as fit."""
    pairs = [Text.assemble((name, "dim"), " ", value, overflow="fold") for name, value in cells.items()]
    return Group(Text(heading, style="bold"), Columns(pairs, padding=(0, 2), equal=True))
