"""`tidegate api`: the HTTP API beside the processes that deliver, in one process or several."""

import asyncio
import signal
from typing import TYPE_CHECKING

import typer

from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.options import Store
from tidegate.cli.process_group import (
    ListenFd,
    MemberPipes,
    ParentFd,
    Processes,
    ProcessGroup,
    ReadyFd,
    member_pipes,
    process_group,
)
from tidegate.cli.service import Host, Port, announce, check_access, listen_at, serve_service
from tidegate.cli.store import gate_for, report_to_sentry
from tidegate.tasks import BackgroundTasks

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.ops.service import Service

app = typer.Typer(add_completion=False)


@app.command(epilog="[b]Try it:[/b]  tidegate api --port 8080  ·  tidegate api --processes 2")
def api(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    processes: Processes = 1,
    store: Store = None,
    listen_fd: ListenFd = None,
    ready_fd: ReadyFd = None,
    parent_fd: ParentFd = None,
) -> None:
    """Serve the HTTP API until Ctrl-C or SIGTERM, beside the worker that delivers.

    With --processes, several processes share the address, and SIGHUP replaces them one by one: no connection
    is refused meanwhile. Requests need an API token: tidegate token create.
    """
    place = ListenAddress(host, port)
    place.check()
    with terminal.command_log():
        if (pipes := member_pipes(listen_fd, ready_fd, parent_fd)) is not None:
            loop.run(_serve_member(_service(store), place, pipes))
        elif processes == 1:
            loop.run(_serve_alone(_service(store), place))
        else:
            _serve_group(store, place, processes)


async def _serve_alone(service: "Service", place: ListenAddress) -> None:
    await check_access(service.gate, service.access, place)
    tasks = BackgroundTasks()
    try:
        await serve_service(
            service,
            place,
            on_ready=lambda found: tasks.start(announce(service.access, found), "says where the API is"),
        )
    finally:
        await tasks.stop()


async def _serve_member(service: "Service", place: ListenAddress, pipes: MemberPipes) -> None:
    """Serve as one of several processes: their parent has the address, and says where it is."""
    with pipes.joined() as listening:
        await serve_service(service, place, listening=listening, on_ready=pipes.say_ready)


def _service(store: str | None) -> "Service":
    from tidegate.ops.service import Service  # noqa: PLC0415  (slow to import)

    gate = gate_for(store, create=True)
    report_to_sentry(gate)
    return Service(gate, delivers=False)


def _serve_group(store: str | None, place: ListenAddress, count: int) -> None:
    arguments = ["api", "--host", place.host, *([] if store is None else ["--store", store])]
    with listen_at(place) as listening, process_group(arguments, listening, count) as group:
        gate = gate_for(store, create=True)
        loop.run(_run_group(group, gate, place._replace(port=listening.getsockname()[1])))


async def _run_group(group: ProcessGroup, gate: "Tidegate", place: ListenAddress) -> None:
    from tidegate.ops.access import AccessControl  # noqa: PLC0415  (slow to import)

    stop = loop.stop_signal()
    access = AccessControl.of(gate.core)

    async def begin() -> None:
        try:
            await announce(access, place)
        finally:
            await gate.core.database.close()

    await check_access(gate, access, place)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, group.reload)
    await group.run(stop, begin)
