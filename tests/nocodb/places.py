"""Where the checks run: a NocoDB that can make tables, the real one or the simulator."""

from dataclasses import dataclass
from typing import Any, Protocol, Self
from zoneinfo import ZoneInfo

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim.nocodb import NocoLimits, SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer

COLUMNS = {
    "OrderId": "SingleLineText",
    "Paid": "Checkbox",
    "Amount": "Number",
    "Due": "DateTime",
    "Sum (USD)": "Number",
}
LOOSE = NocoLimits(rate=Rate(1_000_000, 1))
TOKEN = "the-token-of-the-checks-which-is-40-long"

Json = Any


class Place(Protocol):
    """`make_table` gives the id of an empty table with `COLUMNS`."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def postgres(self) -> bool:
        """True if the tables are in PostgreSQL; else in SQLite, NocoDB's default."""
        ...

    def make_table(self, title: str, zone: str | None = None) -> str:
        """`zone`: of the column Due, in which a time without one is meant."""
        ...


@dataclass
class Simulated:
    server: NocoDbServer
    postgres: bool
    token: str = TOKEN

    @property
    def url(self) -> str:
        return self.server.url

    @classmethod
    def made(cls, *, postgres: bool) -> Self:
        noco = SimulatedNocoDb(Clock(), limits=LOOSE, tokens={TOKEN}, postgres=postgres)
        return cls(NocoDbServer(noco), postgres)

    def make_table(self, title: str, zone: str | None = None) -> str:
        named = ZoneInfo(zone) if zone is not None else None
        return self.server.noco.create_table(title, columns=COLUMNS, zone=named)
