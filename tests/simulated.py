"""Names that tests of the simulator share."""

from collections.abc import Callable, Coroutine
from typing import Any

TOKEN = "42:token"
Call = Callable[..., Coroutine[Any, Any, Any]]
