"""`tidegate gateway`: the Bot API for bots in any language, each call in its turn."""

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple
from urllib.parse import urlsplit

import typer

from tidegate.bots.registry import TELEGRAM
from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.options import HealthHost, HealthPort, Store
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
from tidegate.cli.service import address_of
from tidegate.cli.store import gate_for, is_redis, record_history, report_to_sentry, store_name
from tidegate.errors import BadInputError
from tidegate.loopback import is_loopback
from tidegate.model import BotId
from tidegate.scrubber import contains_token

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate
    from tidegate.gateway.app import GatewayOptions
    from tidegate.gateway.shared_updates import SharingOptions

app = typer.Typer(add_completion=False)
OnReady = Callable[[int], object]

MEGABYTE: Final = 1_000_000

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0: any free one.")
]
TelegramUrl = Annotated[
    str, typer.Option("--telegram", metavar="URL", help="The Bot API server that calls are passed on to.")
]
Allow = Annotated[
    list[int] | None,
    typer.Option(
        "--allow", metavar="BOT", help="A bot that may use the gateway, by its number; may be repeated."
    ),
]
MaxWait = Annotated[
    float,
    typer.Option(
        min=0, max=3600, metavar="SECONDS", help="How long a call may wait for its turn; then it gets 429."
    ),
]
MaxWaits = Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Calls under way at a time.")]
BodyTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=3600,
        metavar="SECONDS",
        help="How long a request may stall before it has arrived; then its client is cut off.",
    ),
]
MaxBody = Annotated[int, typer.Option(min=1, max=4_000, metavar="MB", help="The largest request.")]
ShareUpdates = Annotated[
    bool,
    typer.Option(
        "--share-updates",
        help="Let several programs read a bot's updates, each at /reader/NAME/bot<token>.",
    ),
]
Webhook = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="Where Telegram reaches this gateway to post updates; else it is polled.",
    ),
]
AllowWebhook = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-webhook",
        metavar="HOST",
        help="A host to which readers may have updates posted, beside this machine; may be repeated.",
    ),
]


class GatewayPlan(NamedTuple):
    """The options of the command."""

    place: ListenAddress
    store: str | None
    options: "GatewayOptions"
    health: ListenAddress | None


@app.command(epilog="[b]Try it:[/b]  tidegate gateway  ·  tidegate gateway --listen 0.0.0.0:8081 --allow 42")
def gateway(
    *,
    listen: Listen = "127.0.0.1:8081",
    telegram: TelegramUrl = TELEGRAM,
    allow: Allow = None,
    max_wait: MaxWait = 4.0,
    max_waits: MaxWaits = 1_000,
    max_body: MaxBody = 55,
    body_timeout: BodyTimeout = 10.0,
    share_updates: ShareUpdates = False,
    webhook: Webhook = None,
    allow_webhook: AllowWebhook = None,
    processes: Processes = 1,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    store: Store = None,
    listen_fd: ListenFd = None,
    ready_fd: ReadyFd = None,
    parent_fd: ParentFd = None,
) -> None:
    """Speak the Bot API to bots in any language, until Ctrl-C or SIGTERM.

    A bot gets Tidegate by changing its base URL: each call takes its turn inside the bot's request, and is
    passed on as it is. What a bot hands over with the header X-Tidegate: queue is delivered from here, too.
    With --share-updates, several programs read the updates of one bot, and each gets all of them.
    A store in a file has one process that sends: this one. In Redis, several share the limits; SIGHUP then
    replaces the processes of --processes one by one.
    """
    from tidegate.gateway.app import GatewayOptions  # noqa: PLC0415  (slow to import)

    place = listen_address(listen)
    allowed = frozenset(map(BotId, allow or ()))
    _check_open(place, allowed)
    sharing = sharing_options(webhook, allow_webhook, is_on=share_updates)
    options = GatewayOptions(
        _checked_url(telegram), allowed, max_wait, max_waits, max_body * MEGABYTE, body_timeout, sharing
    )
    health = None if health_port is None else ListenAddress(health_host, health_port, "--health-")
    plan = GatewayPlan(place, store, options, health)
    with terminal.command_log():
        if (pipes := member_pipes(listen_fd, ready_fd, parent_fd)) is not None:
            loop.run(_serve_member(plan, pipes))
        elif processes == 1:
            loop.run(_serve_alone(plan))
        else:
            _serve_group(plan, processes)


def listen_address(text: str) -> ListenAddress:
    """Read HOST:PORT, or [HOST]:PORT for IPv6. Raises BadInputError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or (":" in host and not host.startswith("[")):  # noqa: PLR2004
        raise BadInputError(f"--listen {text!r} is no address: write it as 127.0.0.1:8081")
    place = ListenAddress(host.removeprefix("[").removesuffix("]"), int(port), "--listen: ")
    place.check()
    return place


def _check_open(place: ListenAddress, allowed: frozenset[BotId]) -> None:
    if not is_loopback(place.host) and not allowed:
        raise BadInputError(
            f"{place.host} can be reached from other machines: name the bots that may use the gateway with"
            " --allow NUMBER, or listen on 127.0.0.1"
        )


def _checked_url(url: str) -> str:
    url = url.rstrip("/")
    is_pattern = "{" in url or "}" in url
    if not url.startswith(("http://", "https://")) or contains_token(url):
        raise BadInputError(f"--telegram: write the address before /bot<token>, such as {TELEGRAM}")
    if is_pattern and ("/bot{token}" not in url or "{method}" not in url):
        raise BadInputError("--telegram: a pattern has /bot{token} and {method} in it")
    return url


def sharing_options(webhook: str | None, hosts: list[str] | None, *, is_on: bool) -> "SharingOptions | None":
    from tidegate.gateway.shared_updates import SharingOptions  # noqa: PLC0415  (slow to import)

    if not is_on:
        if webhook is not None or hosts:
            raise BadInputError("--webhook and --allow-webhook are for shared updates: add --share-updates")
        return None
    if webhook is not None and not webhook.startswith("https://") and not is_loopback(_host_of(webhook)):
        raise BadInputError(
            "--webhook: Telegram posts to https:// addresses only, such as https://bot.example"
        )
    for host in hosts or ():
        if not host or set(host) & set("/@ ") or "://" in host:
            raise BadInputError(f"--allow-webhook {host!r}: write the name of a host, such as bot.example")
    return SharingOptions(webhook, frozenset(host.lower() for host in hosts or ()))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _gate(plan: GatewayPlan) -> "Tidegate":
    gate = gate_for(plan.store, create=True)
    report_to_sentry(gate)
    record_history(gate)
    return gate


async def _serve_alone(plan: GatewayPlan) -> None:
    def ready(port: int) -> None:
        _announce(plan.place._replace(port=port), plan.options)

    await _serve(plan, on_ready=ready)


async def _serve_member(plan: GatewayPlan, pipes: MemberPipes) -> None:
    """Serve as one of several processes: their parent has the address, and says where it is."""
    with pipes.joined() as listening:
        await _serve(plan, listening=listening, on_ready=pipes.say_ready)


async def _serve(plan: GatewayPlan, *, on_ready: OnReady, listening: socket.socket | None = None) -> None:
    from tidegate.cli.health_server import serve_health, tokens_of  # noqa: PLC0415  (slow to import)
    from tidegate.gateway.app import GatewayApp  # noqa: PLC0415  (likewise)
    from tidegate.inbound.server import serve  # noqa: PLC0415  (likewise)

    gate = _gate(plan)
    async with AsyncExitStack() as stack:
        authenticate = await stack.enter_async_context(tokens_of(gate))
        await stack.enter_async_context(
            serve_health(
                gate, plan.health, gate.clock, authenticate=authenticate, shared=listening is not None
            )
        )
        served = GatewayApp(gate, authenticate, plan.options)
        await serve(
            served,
            host=plan.place.host,
            port=plan.place.port,
            listening=listening,
            on_ready=on_ready,
            on_stopping=served.drain,
            on_second_signal=gate.core.end_at_once,
        )


def _serve_group(plan: GatewayPlan, count: int) -> None:
    from tidegate.inbound.server import listen  # noqa: PLC0415  (slow to import)

    if not is_redis(store_name(plan.store)):
        raise BadInputError(
            "a store in a file has one process that sends: start one, or share Redis with --store redis://…"
        )
    if plan.health is not None and plan.health.port == 0:
        raise BadInputError("--health-port 0 would be another port in each process: name one for all of them")
    options = plan.options
    arguments = [
        "gateway",
        "--listen",
        f"{plan.place.host}:{plan.place.port}",
        "--telegram",
        options.api_url,
        "--max-wait",
        str(options.max_wait),
        "--max-waits",
        str(options.most_waits),
        "--max-body",
        str(options.largest_body // MEGABYTE),
        "--body-timeout",
        str(options.body_timeout),
        *(word for bot in sorted(options.allowed) for word in ("--allow", str(bot))),
        *sharing_words(options.sharing),
        *(
            []
            if plan.health is None
            else ["--health-host", plan.health.host, "--health-port", str(plan.health.port)]
        ),
        *([] if plan.store is None else ["--store", plan.store]),
    ]
    with (
        listen(plan.place.host, plan.place.port) as listening,
        process_group(arguments, listening, count) as group,
    ):
        place = plan.place._replace(port=listening.getsockname()[1])
        loop.run(_run_group(group, plan, place))


def sharing_words(sharing: "SharingOptions | None") -> list[str]:
    """Return the options that a member of a group is started with."""
    if sharing is None:
        return []
    webhook = [] if sharing.webhook_url is None else ["--webhook", sharing.webhook_url]
    hosts = [word for host in sorted(sharing.webhook_hosts) for word in ("--allow-webhook", host)]
    return ["--share-updates", *webhook, *hosts]


async def _run_group(group: ProcessGroup, plan: GatewayPlan, place: ListenAddress) -> None:
    stop = loop.stop_signal()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, group.reload)
    _announce(place, plan.options)
    await group.run(stop)


def _announce(place: ListenAddress, options: "GatewayOptions") -> None:
    terminal.put_line(f"Gateway  {address_of(place)}  (calls go to {options.api_url})")
    if options.sharing is not None:
        terminal.put_line(f"Updates are shared: {address_of(place)}/reader/NAME/bot<token>/getUpdates")
    if not options.allowed:
        terminal.put_line(
            "Any bot may use it: name yours with --allow NUMBER, or keep this address to yourself."
        )
