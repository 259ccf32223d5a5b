"""The control API: read what happened, change the weather, be the others who edit the tables.

| request | does |
|---|---|
| `GET /sim/report` · `/sim/log` · `/sim/tables` · `/sim/rows?table=` | what was counted, asked, is there |
| `POST /sim/reset` | start counting again |
| `GET`, `PATCH /sim/faults` · `/sim/limits` | read or change, while running |
| `POST /sim/table` · `/sim/drop` | create a table, drop one |
| `POST /sim/insert` · `update` · `pay` · `direct` · `delete` | somebody else edits rows |
| `POST /sim/skew` · `/sim/stop` · `/sim/start` | the server's clock is off · it is down · up again |

No token is needed, and nothing here counts against the limit.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.nocodb.faults import Latency, NocoFaults
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.nocodb.nocodb import SimulatedNocoDb
from tidegate.sim.telegram.incoming import as_json
from tidegate.sim.telegram.people_control import read_request

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Skew = Annotated[float, msgspec.Meta(ge=-1e8, le=1e8)]
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class CreateTableRequest(msgspec.Struct, forbid_unknown_fields=True):
    title: Title
    key: Title = "Id"
    columns: dict[Title, str] | None = None


class TableRequest(msgspec.Struct, forbid_unknown_fields=True):
    table: str


class WriteRowsRequest(TableRequest, forbid_unknown_fields=True):
    rows: list[dict[str, Any]]
    commit_after: Seconds = 0.0


class PayRowRequest(TableRequest, forbid_unknown_fields=True):
    id: int
    commit_after: Seconds = 0.0


class DirectUpdateRequest(TableRequest, forbid_unknown_fields=True):
    id: int
    fields: dict[str, Any]


class DeleteRowsRequest(TableRequest, forbid_unknown_fields=True):
    ids: list[int]


class ClockSkewRequest(msgspec.Struct, forbid_unknown_fields=True):
    seconds: Skew


Options = TypeVar("Options", NocoFaults, NocoLimits)
ControlHandler = Callable[[web.Request], Awaitable[object]]


class NocoDbControl:
    def __init__(self, noco: SimulatedNocoDb) -> None:
        self._noco = noco

    def routes(self) -> list[web.RouteDef]:
        looks: dict[str, ControlHandler] = {
            "report": self._report,
            "log": self._log,
            "tables": self._tables,
            "rows": self._rows,
            "faults": self._faults,
            "limits": self._limits,
        }
        acts: dict[str, ControlHandler] = {
            "reset": self._reset,
            "table": self._table,
            "drop": self._drop,
            "insert": self._insert,
            "update": self._update,
            "pay": self._pay,
            "direct": self._direct,
            "delete": self._delete,
            "skew": self._skew,
            "stop": self._stop,
            "start": self._start,
        }
        return [
            *(web.get(f"/sim/{name}", _answering(look)) for name, look in looks.items()),
            *(web.post(f"/sim/{name}", _answering(act)) for name, act in acts.items()),
            web.patch("/sim/faults", _answering(self._change_faults)),
            web.patch("/sim/limits", _answering(self._change_limits)),
            web.route("*", "/sim/{name:.*}", _answering(_unknown)),
        ]

    async def _report(self, _: web.Request) -> object:
        return self._noco.report()

    async def _log(self, _: web.Request) -> object:
        return {"log": [entry._asdict() for entry in self._noco.ledger.log]}

    async def _tables(self, _: web.Request) -> object:
        tables = self._noco.tables.values()
        return {"tables": [{"id": each.id, "title": each.title, "rows": len(each.rows)} for each in tables]}

    async def _rows(self, request: web.Request) -> object:
        return {"rows": self._noco.rows(request.query.get("table", ""))}

    async def _faults(self, _: web.Request) -> object:
        return show(self._noco.faults)

    async def _limits(self, _: web.Request) -> object:
        return show(self._noco.throttle.limits)

    async def _change_faults(self, request: web.Request) -> object:
        self._noco.faults = change(self._noco.faults, await read_request(request, dict[str, Any]))
        return show(self._noco.faults)

    async def _change_limits(self, request: web.Request) -> object:
        self._noco.set_limits(change(self._noco.throttle.limits, await read_request(request, dict[str, Any])))
        return show(self._noco.throttle.limits)

    async def _reset(self, _: web.Request) -> object:
        self._noco.reset()
        return {}

    async def _table(self, request: web.Request) -> object:
        order = await read_request(request, CreateTableRequest)
        return {"table": self._noco.create_table(order.title, key=order.key, columns=order.columns)}

    async def _drop(self, request: web.Request) -> object:
        self._noco.drop_table((await read_request(request, TableRequest)).table)
        return {}

    async def _insert(self, request: web.Request) -> object:
        order = await read_request(request, WriteRowsRequest)
        return {"ids": self._noco.insert(order.table, order.rows, commit_after=order.commit_after)}

    async def _update(self, request: web.Request) -> object:
        order = await read_request(request, WriteRowsRequest)
        self._noco.update(order.table, order.rows, commit_after=order.commit_after)
        return {}

    async def _pay(self, request: web.Request) -> object:
        order = await read_request(request, PayRowRequest)
        self._noco.pay(order.table, order.id, commit_after=order.commit_after)
        return {}

    async def _direct(self, request: web.Request) -> object:
        order = await read_request(request, DirectUpdateRequest)
        self._noco.direct(order.table, order.id, **order.fields)
        return {}

    async def _delete(self, request: web.Request) -> object:
        order = await read_request(request, DeleteRowsRequest)
        self._noco.delete(order.table, order.ids)
        return {}

    async def _skew(self, request: web.Request) -> object:
        self._noco.skew = (await read_request(request, ClockSkewRequest)).seconds
        return {"seconds": self._noco.skew}

    async def _stop(self, _: web.Request) -> object:
        self._noco.stop()
        return {}

    async def _start(self, _: web.Request) -> object:
        self._noco.start()
        return {}


def show(options: NocoFaults | NocoLimits) -> dict[str, Any]:
    """Options as JSON, rates and latencies in the form that people write."""
    shown: dict[str, Any] = msgspec.to_builtins(options, enc_hook=str)
    return shown


def change(options: Options, changes: dict[str, Any]) -> Options:
    """The same options but for `changes`, as JSON. Raises BadInputError for what cannot be."""
    try:
        return msgspec.convert(show(options) | changes, type(options), dec_hook=_parse)
    except msgspec.ValidationError as error:
        raise BadInputError(str(error)) from error


def _parse(kind: type[Rate | Latency], text: object) -> Rate | Latency:
    return kind.parse(str(text))


async def _unknown(_: web.Request) -> object:
    raise BadInputError("the control API has nothing of that name: see the simulator's reference")


def _answering(act: ControlHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
    """JSON for what `act` returns; a 400 with one line for what was asked wrongly."""

    async def handler(request: web.Request) -> web.Response:
        try:
            return as_json(200, await act(request))
        except BadInputError as error:
            return as_json(400, {"error": str(error)})

    return handler
