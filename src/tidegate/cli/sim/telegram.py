"""`tidegate sim telegram`: serve until a signal comes, show what happens, report at the end."""

from collections.abc import Awaitable, Callable, Iterable, Reversible
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import islice
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.progress import Meter, sparkline
from tidegate.cli.terminal import printable
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.loopback import is_loopback
from tidegate.sim.telegram import Faults, Limits, World
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.request_log import POLL, LoggedCall

# Together they fit a terminal of 80 columns and 24 lines.
WIDTH = 88
SECONDS_SHOWN = 50
CALLS_SHOWN = 4
FIRST_ERROR = 400
GROUPS = ("group", "supergroup", "channel")


class SimView:
    """The simulated Telegram as a picture: how full its limits got, what it refused, how fast it goes."""

    def __init__(self, server: TelegramServer, about_people: Callable[[], dict[str, Any]]) -> None:
        self._server, self._about_people = server, about_people
        self._requests, self._refused = Meter(SECONDS_SHOWN), Meter(SECONDS_SHOWN)

    def picture(self) -> RenderableType:
        telegram, url = self._server.telegram, self._server.url
        report = telegram.report() | self._about_people()
        now = telegram.clock.monotonic()
        self._requests.read(now, report["requests"])
        self._refused.read(now, report["refused"])
        content = Group(
            Text.assemble("Give your bot this address:  ", (url, "bold cyan")),
            Text(),
            _counts(report, self._requests.per_second()),
            pulse(self._requests, self._refused, telegram.flood.limits.bot.count),
            Text(),
            limits_table(report, telegram.flood.limits),
            Text(),
            _details(report),
            _latest(telegram.request_log.log),
        )
        title = Text("Telegram, simulated", style="bold")
        hint = Text(f"more: curl {url}/sim/report · Ctrl-C stops", style="dim")
        return Panel(content, title=title, subtitle=hint, width=WIDTH, padding=(0, 2), border_style="cyan")


def pulse(requests: Meter, refused: Meter, limit: int) -> RenderableType:
    """Show requests and refusals, second by second."""
    asked, held = requests.history(), refused.history()
    top = max(limit, *asked)
    grid = Table.grid(padding=(0, 1))
    for name, counts, style, note in (
        ("requests", asked, "green", f"↑ {top}/s"),
        ("refused", held, "red", f"last {SECONDS_SHOWN} s"),
    ):
        grid.add_row(name, Text(sparkline(counts, top), style=style), Text(note, style="dim"))
    return grid


def _counts(report: dict[str, Any], per_second: int) -> RenderableType:
    requests, refused = report["requests"], report["refused"]
    grid = Table.grid(expand=True)
    numbers = (
        ("requests", f"{requests:,}", "bold"),
        ("accepted", f"{report['accepted']:,}", "bold green"),
        ("refused", f"{refused:,} ({percent(refused, requests)})", "bold red" if refused else "bold"),
        ("now", f"{per_second}/s", "bold"),
        ("peak", f"{report['peak_rps']}/s", "bold"),
    )
    for _ in numbers:
        grid.add_column()
    grid.add_row(*(Text.assemble(f"{name} ", (value, style)) for name, value, style in numbers))
    return grid


def limits_table(report: dict[str, Any], limits: Limits) -> Table:
    """Show each limit, the most calls that one of its windows held, and how many calls it refused."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True)
    for name in ("limit", "allows", "fullest window"):
        table.add_column(name, no_wrap=True)
    table.add_column("", justify="right")
    table.add_column("refused", justify="right")
    rows = (
        ("bot", limits.bot, ("bot",)),
        ("private chat", limits.private, ("private",)),
        ("group, channel", limits.group, GROUPS),
        ("paid broadcast", limits.paid, ("paid",)),
    )
    for name, rate, scopes in rows:
        peak = max(report["peaks"].get(scope, 0) for scope in scopes)
        refused = _refused(report, scopes)
        if scopes == ("paid",) and not peak:
            continue
        most = max(rate.count, limits.burst) if scopes == ("private",) else rate.count
        bar = ProgressBar(total=most, completed=peak, width=24, finished_style="yellow")
        allows = f"{rate.count} in {rate.seconds:g} s" + (f", {most} at once" if most > rate.count else "")
        table.add_row(name, allows, bar, f"{peak}/{most}", _red(refused))
    for name, scope in (
        ("“typing …”", "action"),
        ("chat still closed", "chat_closed"),
        ("bot still closed", "bot_closed"),
    ):
        if refused := _refused(report, (scope,)):
            table.add_row(name, "", "", "", _red(refused))
    return table


def _details(report: dict[str, Any]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_row("answers", _listed(report["statuses"]) or "none yet")
    grid.add_row("faults", _listed(report["faults"]) or "none yet")
    if "crowd" in report:
        grid.add_row("people", _crowd(report["crowd"]))
    return grid


def _crowd(crowd: dict[str, Any]) -> str:
    if not crowd["said"]:
        return f"{crowd['users']:,} {'waits' if crowd['users'] == 1 else 'wait'} for a bot"
    waits = f"reply in {crowd['p50_ms']:,.0f} ms, p99 {crowd['p99_ms']:,.0f} ms"
    return f"{crowd['users']:,} said {crowd['said']:,} · answered {crowd['answered']:,} · {waits}"


def _latest(log: Reversible[LoggedCall]) -> RenderableType:
    calls = (entry for entry in reversed(log) if entry.method != POLL)
    entries = list(islice(calls, CALLS_SHOWN))[::-1]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=18)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for entry in entries:
        style = "green" if entry.status < FIRST_ERROR else "red"
        chat = printable(entry.chat_id) if entry.chat_id is not None else ""
        grid.add_row(Text(str(entry.status), style), entry.method, chat, Text(printable(entry.text), "dim"))
    return grid if entries else Text("No call yet.", style="dim")


def _refused(report: dict[str, Any], scopes: Iterable[str]) -> int:
    return sum(report["refused_by"].get(scope, 0) for scope in scopes)


def _red(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "dim")


def _listed(counts: dict[str, Any]) -> str:
    return " · ".join(f"{name}: {count:,}" for name, count in counts.items())


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def serve(
    place: ListenAddress,
    *,
    limits: Limits,
    faults: Faults,
    world: World,
    crowd: int,
    seed: int,
    as_json: bool,
) -> None:
    """Block until SIGINT or SIGTERM. Raises BadInputError if it cannot listen there."""
    server = TelegramServer(
        host=place.host, port=place.port, limits=limits, faults=faults, world=world, seed=seed
    )

    def people() -> dict[str, Any]:
        return {"crowd": server.control.crowd_report()} if crowd else {}

    async def gather(_: AsyncExitStack) -> str:
        if crowd:
            server.control.gather_for_first_bot(crowd, seed)
        return f"Telegram is simulated at {server.url}"

    view = SimView(server, people)
    run_server(server, place, view.picture, gather, as_json=as_json)
    if as_json:
        terminal.put_json(server.telegram.report() | people() | {"seed": seed})


def run_server(
    server: AbstractAsyncContextManager[object],
    place: ListenAddress,
    picture: Callable[[], RenderableType],
    start: Callable[[AsyncExitStack], Awaitable[str]],
    *,
    as_json: bool,
) -> None:
    """Serve until Ctrl-C. `start` begins what runs beside the server, and returns a line to print."""
    place.check()
    watched = terminal.is_watched() and not as_json
    loop.run(_run_server(server, place, picture if watched else None, start, as_json=as_json))
    if not as_json and not watched:
        terminal.put(picture())


async def _run_server(
    server: AbstractAsyncContextManager[object],
    place: ListenAddress,
    picture: Callable[[], RenderableType] | None,
    start: Callable[[AsyncExitStack], Awaitable[str]],
    *,
    as_json: bool,
) -> None:
    stop = loop.stop_signal()
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise BadInputError(place.why_not(error)) from error
        if not is_loopback(place.host):
            terminal.note(
                f"tidegate: warning: others may reach {place.host}, and the control API has no password"
            )
        line = await start(stack)
        if picture is None:
            terminal.announce(f"{line} (Ctrl-C stops it and prints a report)", as_json=as_json)
            await stop.wait()
            return
        with terminal.drawing(picture) as draw:
            async for _ in loop.frames(stop, Clock()):
                draw()
