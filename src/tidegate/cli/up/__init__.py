"""`tidegate up`: the whole service in one process, or a sample of it if there is no bot yet."""

import asyncio
import logging
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.options import Store
from tidegate.cli.service import (
    Host,
    Port,
    announce,
    check_access,
    listen_at,
    serve_service,
)
from tidegate.cli.store import gate_for, public_store_name, report_to_sentry
from tidegate.cli.user_module import import_user_module
from tidegate.cli.worker import WorkerRun, print_lines, watch
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.extras import extra
from tidegate.loopback import is_loopback
from tidegate.settings import STORE_FILE, Settings

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.cli.up.sample import SampleTraffic
    from tidegate.gate import Tidegate
    from tidegate.ops.service import Service

app = typer.Typer(add_completion=False)

Application = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:GATE]",
        show_default=False,
        help="Your own gate, such as mybot:gate: its handlers, jobs and pollers run here, too.",
    ),
]
Sample = Annotated[
    bool, typer.Option("--sample", help="Start on simulators with sample traffic, whatever is set up here.")
]

SAMPLE: Final = (
    "No bot is set up here, so this is a simulated Telegram with sample traffic: a broadcast, replies,",
    "payments and reminders, under Telegram's published limits. Nothing leaves this machine or is kept.",
    "Your own bot: TELEGRAM_BOT_TOKEN=… tidegate up",
    "A token for the API is made on the dashboard: one of tidegate token create is for your own bot.",
)
SAMPLE_ONLY_HERE: Final = (
    "no bot is set up here, and the sample is shown on this machine alone: leave --host out for it, or"
    " give your own bot with TELEGRAM_BOT_TOKEN=… or tidegate bot add"
)


@app.command(
    epilog="[b]Try it:[/b]  tidegate up  ·  TELEGRAM_BOT_TOKEN=… tidegate up  ·  tidegate up mybot:gate"
)
def up(
    application: Application = None,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    sample: Sample = False,
    store: Store = None,
) -> None:
    """Run API, worker, scheduler and webhooks in one process until Ctrl-C or SIGTERM.

    It needs nothing but a file. Without a bot (TELEGRAM_BOT_TOKEN, or tidegate bot add) it starts on
    simulators, with traffic to look at. For several machines, start tidegate api, worker and scheduler apart.
    """
    place = ListenAddress(host, port)
    place.check()
    if sample and (application is not None or store is not None):
        raise BadInputError("--sample brings its own bots and store: leave the gate and --store out")
    with ExitStack() as stack:
        if sample or is_untouched(application, store, Settings.read()):
            if not is_loopback(host):
                raise BadInputError(SAMPLE_ONLY_HERE)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-sample-"))
            traffic: SampleTraffic | None = _sample_traffic(Path(folder))
            gate, name = traffic.gate, "simulated bots"  # type: ignore[union-attr]  # just made
        else:
            traffic, gate = None, _gate(application, store)
            name = public_store_name(gate.core.store_name.removeprefix("sqlite:///"))
        stack.enter_context(terminal.command_log())
        report_to_sentry(gate)
        loop.run(_run(_service(gate, traffic), name, place, traffic))


def is_untouched(application: str | None, store: str | None, settings: Settings) -> bool:
    """Return whether nothing here says which bot to run: no gate, no store, no token."""
    named = application is not None or store or settings.store.variable or settings.telegram_bot_token
    return not named and not Path(STORE_FILE).exists()


def _sample_traffic(folder: Path) -> "SampleTraffic":
    with extra("aiogram"):
        from tidegate.cli.up.sample import SampleTraffic  # noqa: PLC0415

    logging.getLogger("aiogram").setLevel(logging.WARNING)  # a line for each update
    for line in SAMPLE:
        terminal.put_line(line)
    terminal.put_line("")
    return SampleTraffic(folder, Clock())


def _gate(application: str | None, store: str | None) -> "Tidegate":
    if application is None:
        gate = gate_for(store, create=True)
    elif store is not None:
        raise BadInputError("--store: the gate of MODULE:GATE has its own store")
    else:
        gate = load_gate(application)
    if (known := gate.settings.telegram_bot_token) is not None:
        token = known.get_secret_value()
        if not any(token.startswith(f"{bot.id}:") for bot in gate.bots()):  # else the application added it
            gate.add_bot(token)
    return gate


def load_gate(name: str) -> "Tidegate":
    """Import a gate by `module:name`. Raises BadInputError."""
    from tidegate.gate import Tidegate  # noqa: PLC0415  (slow to import: `--help` does without)

    module, _, attribute = name.partition(":")
    attribute = attribute or "gate"
    if not all(module.split(".")):
        raise BadInputError(f"{name!r} names no gate: write MODULE:GATE, such as mybot:gate")
    found = getattr(import_user_module(module), attribute, None)
    if not isinstance(found, Tidegate):
        raise BadInputError(f"{attribute} of {module} is not a Tidegate: write MODULE:GATE")
    return found


def _service(gate: "Tidegate", traffic: "SampleTraffic | None") -> "Service":
    from tidegate.ops.service import Service  # noqa: PLC0415  (slow to import)

    parts = [] if traffic is None else [traffic]
    return Service(gate, delivers=True, polls=traffic is not None, parts=parts)


async def _run(service: "Service", name: str, place: ListenAddress, traffic: "SampleTraffic | None") -> None:
    gate = service.gate
    run, ended = WorkerRun(gate, gate.clock), asyncio.Event()
    async with AsyncExitStack() as stack:
        await check_access(gate, service.access, place)
        listening = stack.enter_context(listen_at(place))  # before anything is started
        if traffic is not None:
            await traffic.open()
            stack.push_async_callback(traffic.close)

        async def begin(found: ListenAddress) -> None:
            await announce(service.access, found)
            if not gate.bots():
                terminal.put_line("No bot is registered yet: tidegate bot add, or POST /api/v1/bots")
            await run.start()
            await (watch(run, name, ended) if terminal.is_watched() else print_lines(run, ended))

        beside = asyncio.TaskGroup()
        await stack.enter_async_context(beside)
        try:
            await serve_service(
                service,
                place,
                listening=listening,
                on_ready=lambda found: beside.create_task(begin(found)),
            )
        finally:
            ended.set()
