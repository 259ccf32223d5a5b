"""Names that the tests of the simulated NocoDB share."""

from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.model import Rate
from tidegate.sim.nocodb import NocoLimits

LOOSE = NocoLimits(rate=Rate(100_000, 1))
COLUMNS = {
    "OrderId": "SingleLineText",
    "Amount": "Number",
    "Paid": "Checkbox",
    "Due": "DateTime",
}
Ask = Callable[..., Awaitable[tuple[int, Any]]]
