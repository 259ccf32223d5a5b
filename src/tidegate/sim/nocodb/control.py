"""The control API: read what happened, change limits and faults, edit tables as other programs do.

| request | does |
|---|---|
| `GET /sim/report` · `/sim/log` · `/sim/tables` · `/sim/rows?table=` | counts, requests, tables, rows |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST /sim/table` · `/sim/drop` | create a table, drop one |
| `POST /sim/insert` · `update` · `pay` · `direct` · `delete` | edit rows without a request to the API |
| `POST /sim/skew` · `/sim/stop` · `/sim/start` | set the server's clock off · take it down · start it again |

No token is needed, and nothing here counts against the limit.
"""

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.sim.nocodb.nocodb import SimulatedNocoDb
from tidegate.sim.server import ControlFunction, control_handler, option_routes, read_request

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Skew = Annotated[float, msgspec.Meta(ge=-1e8, le=1e8)]
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class NocoDbAction(msgspec.Struct):
    def run(self, noco: SimulatedNocoDb) -> object:
        """Carry out the request; returns its JSON answer."""
        raise NotImplementedError


class CreateTableRequest(NocoDbAction, forbid_unknown_fields=True):
    title: Title
    key: Title = "Id"
    columns: dict[Title, str] | None = None

    def run(self, noco: SimulatedNocoDb) -> object:
        return {"table": noco.create_table(self.title, key=self.key, columns=self.columns)}


class DropTableRequest(NocoDbAction, forbid_unknown_fields=True):
    table: str

    def run(self, noco: SimulatedNocoDb) -> object:
        noco.drop_table(self.table)
        return {}


class InsertRequest(NocoDbAction, forbid_unknown_fields=True):
    table: str
    rows: list[dict[str, Any]]
    commit_after: Seconds = 0.0

    def run(self, noco: SimulatedNocoDb) -> object:
        return {"ids": noco.insert(self.table, self.rows, commit_after=self.commit_after)}


class UpdateRequest(InsertRequest, forbid_unknown_fields=True):
    def run(self, noco: SimulatedNocoDb) -> object:
        noco.update(self.table, self.rows, commit_after=self.commit_after)
        return {}


class PayRowRequest(NocoDbAction, forbid_unknown_fields=True):
    table: str
    id: int
    commit_after: Seconds = 0.0

    def run(self, noco: SimulatedNocoDb) -> object:
        noco.pay(self.table, self.id, commit_after=self.commit_after)
        return {}


class DirectUpdateRequest(NocoDbAction, forbid_unknown_fields=True):
    table: str
    id: int
    fields: dict[str, Any]

    def run(self, noco: SimulatedNocoDb) -> object:
        noco.direct(self.table, self.id, **self.fields)
        return {}


class DeleteRowsRequest(NocoDbAction, forbid_unknown_fields=True):
    table: str
    ids: list[int]

    def run(self, noco: SimulatedNocoDb) -> object:
        noco.delete(self.table, self.ids)
        return {}


class ClockSkewRequest(NocoDbAction, forbid_unknown_fields=True):
    seconds: Skew

    def run(self, noco: SimulatedNocoDb) -> object:
        noco.skew = self.seconds
        return {"seconds": noco.skew}


# By the last part of the path.
ACTIONS: Final[dict[str, type[NocoDbAction]]] = {
    "table": CreateTableRequest,
    "drop": DropTableRequest,
    "insert": InsertRequest,
    "update": UpdateRequest,
    "pay": PayRowRequest,
    "direct": DirectUpdateRequest,
    "delete": DeleteRowsRequest,
    "skew": ClockSkewRequest,
}


class NocoDbControl:
    def __init__(self, noco: SimulatedNocoDb) -> None:
        self._noco = noco

    def routes(self) -> list[web.RouteDef]:
        noco = self._noco
        reads: dict[str, ControlFunction] = {
            "report": self._report,
            "log": self._log,
            "tables": self._tables,
            "rows": self._rows,
        }
        posts: dict[str, ControlFunction] = {
            "reset": self._reset,
            "stop": self._stop,
            "start": self._start,
            **{name: partial(self._act, kind=kind) for name, kind in ACTIONS.items()},
        }
        return [
            *(web.get(f"/sim/{name}", control_handler(read)) for name, read in reads.items()),
            *(web.post(f"/sim/{name}", control_handler(post)) for name, post in posts.items()),
            *option_routes("faults", lambda: noco.faults, partial(setattr, noco, "faults")),
            *option_routes("limits", lambda: noco.limiter.limits, noco.set_limits),
            web.route("*", "/sim/{name:.*}", control_handler(_unknown)),
        ]

    async def _act(self, request: web.Request, *, kind: type[NocoDbAction]) -> object:
        return (await read_request(request, kind)).run(self._noco)

    async def _report(self, _: web.Request) -> object:
        return self._noco.report()

    async def _log(self, _: web.Request) -> object:
        return {"log": [entry._asdict() for entry in self._noco.request_log.log]}

    async def _tables(self, _: web.Request) -> object:
        tables = self._noco.tables.values()
        return {"tables": [{"id": each.id, "title": each.title, "rows": len(each.rows)} for each in tables]}

    async def _rows(self, request: web.Request) -> object:
        return {"rows": self._noco.rows(request.query.get("table", ""))}

    async def _reset(self, _: web.Request) -> object:
        self._noco.reset()
        return {}

    async def _stop(self, _: web.Request) -> object:
        self._noco.stop()
        return {}

    async def _start(self, _: web.Request) -> object:
        self._noco.start()
        return {}


async def _unknown(_: web.Request) -> object:
    raise BadInputError("the control API has no such path: see the simulator's reference")
