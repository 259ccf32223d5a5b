"""Serving the HTTP API from a command: where it listens, who may reach it, and what is said at the start."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidegate.access import Role
from tidegate.cli import terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.reminders.options import naming_the_database
from tidegate.database import tables_exist
from tidegate.errors import BadInputError, StoreError
from tidegate.loopback import is_loopback

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.ops.access import AccessControl
    from tidegate.ops.service import Service

log = logging.getLogger("tidegate")

Host = Annotated[
    str, typer.Option("--host", metavar="HOST", help="Where to listen; default: this machine only.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, metavar="PORT", help="0: any free port.")]

NO_ACCESS: Final = (
    "nobody has access yet, and {host} can be reached from other machines: make a token first with"
    " tidegate token create --role admin --name NAME, or listen on 127.0.0.1"
)


async def check_access(gate: "Tidegate", access: "AccessControl", place: ListenAddress) -> None:
    """Raise BadInputError if others could reach the API before anybody was given access to it.

    Likewise if DATABASE_URL cannot be meant, before anything is started that needs it. Makes no database.
    """
    core = gate.core
    with naming_the_database():
        database = await asyncio.to_thread(lambda: core.database)  # it imports a library
    if is_loopback(place.host):
        return
    try:
        known = await tables_exist(core.store_name, core.settings, core.clock) and await access.has_tokens()
    finally:
        await database.close()  # it is opened again by whoever needs it
    if not known:
        raise BadInputError(NO_ACCESS.format(host=place.host))


def listen_at(place: ListenAddress) -> socket.socket:
    """Raises BadInputError, which says what to change, if the address cannot be used."""
    from tidegate.inbound.server import listen  # noqa: PLC0415  (slow to import)

    try:
        return listen(place.host, place.port)
    except BadInputError as error:
        raise BadInputError(f"{error}: choose another place with --host and --port") from None


async def login_link(access: "AccessControl", place: ListenAddress) -> str | None:
    """Return a one-time link for the first admin; None if there is one already, or the API is not local."""
    if not is_loopback(place.host):
        return None
    try:
        if await access.has_tokens(Role.ADMIN):
            return None
        return f"{address_of(place)}/login?code={await access.make_login_link()}"
    except StoreError as error:
        log.warning("no link to log in: %s", error)
        return None


def address_of(place: ListenAddress) -> str:
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"http://{host}:{place.port}"


async def announce(access: "AccessControl", place: ListenAddress) -> None:
    """Say where the API and the dashboard are and, at a first start, how to log in."""
    address = address_of(place)
    terminal.put_line(f"API        {address}/api/v1  (described in /openapi.json; health: /readyz)")
    if (link := await login_link(access, place)) is None:
        terminal.put_line(f"Dashboard  {address}/  (log in with a token: tidegate token create)")
    else:
        terminal.put_line("Dashboard  with this link, which logs you in once and within 10 minutes:")
        terminal.report_secret({}, "link", link, as_json=False)


async def serve_service(
    service: "Service",
    place: ListenAddress,
    *,
    listening: socket.socket | None = None,
    on_ready: Callable[[ListenAddress], object] = bool,
) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` is called with the address as soon as it serves."""
    from tidegate.inbound.server import serve  # noqa: PLC0415  (slow to import)
    from tidegate.ops.api.problems import word_error  # noqa: PLC0415  (likewise)

    await serve(
        service.app,
        listening=listening or listen_at(place),
        on_ready=lambda port: on_ready(place._replace(port=port)),
        on_stopping=service.app.end_streams,
        on_second_signal=service.gate.core.end_at_once,
        word_error=word_error,
    )
