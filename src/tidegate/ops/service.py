"""The service of one process: the HTTP API and what stands beside it, around one gate."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tidegate.gate import Tidegate
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import ServiceApp, ServicePart, make_api
from tidegate.ops.metrics import Metrics


class Service:
    """The service of `tidegate up` and `api`. `app`, its ASGI application, opens and closes all.

    With `delivers`, this process also sends, fires reminders, runs jobs and pollers, and takes webhooks; with
    `polls`, dispatchers that are attached to the gate are left to poll. Without `delivers`, it puts messages
    and answers questions beside the processes that do. `parts` run while it is served.
    """

    def __init__(
        self,
        gate: Tidegate,
        *,
        delivers: bool,
        polls: bool = False,
        parts: Sequence[ServicePart] = (),
    ) -> None:
        self.gate = gate
        self.access = AccessControl.of(gate.core)
        self.metrics = Metrics(gate, history=gate.record_history())
        keeper = (_keep_campaigns(gate),) if delivers else ()
        self.app: ServiceApp = make_api(
            gate,
            self.access,
            webhook=gate.asgi(webhook=not polls) if delivers else None,
            metrics=self.metrics,
            parts=(*keeper, *parts),
        )


@asynccontextmanager
async def _keep_campaigns(gate: Tidegate) -> AsyncIterator[None]:
    """Go on with broadcasts that a process has left. Made when the gate is open, which it needs."""
    async with gate.keep_campaigns():
        yield


def make_app() -> ServiceApp:
    """Return the API for a server of one's own: `uvicorn --factory tidegate.ops.service:make_app`."""
    return Service(Tidegate(), delivers=False).app
