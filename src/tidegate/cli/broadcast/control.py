"""`tidegate broadcast list`, `show`, `pause`, `resume` and `cancel`: for every broadcast of the store."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.broadcast import app
from tidegate.cli.messages import amount, only_one
from tidegate.cli.options import AsJson, OfBot, Store, Yes
from tidegate.cli.store import using_gate
from tidegate.cli.terminal import confirm, printable
from tidegate.cli.times import moment, short_moment
from tidegate.clock import Clock
from tidegate.outbox.campaigns import CampaignRecord, CampaignWish

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="As shown by broadcast list; its beginning is enough.")
]
LOOK_SECONDS: Final = 0.5
STYLES: Final = {"running": "green", "finished": "dim", "paused": "yellow", "failed": "red", "stopped": "red"}


@app.command("list")
def list_(*, bot: OfBot = None, store: Store = None, as_json: AsJson = False) -> None:
    """List the broadcasts that the store knows, the oldest first."""

    async def look(gate: "Tidegate") -> list[CampaignRecord]:
        return [one for one in await gate.campaigns() if bot is None or one.bot == bot]

    found = using_gate(store, look)
    parts = [campaign_table(found, Clock().now())] if found else ["No broadcasts."]
    terminal.report({"broadcasts": list(map(campaign_json, found))}, *parts, as_json=as_json)


@app.command()
def show(name: NameArgument, *, bot: OfBot = None, store: Store = None, as_json: AsJson = False) -> None:
    """Show everything known of a broadcast."""
    record = using_gate(store, lambda gate: find_campaign(gate, name, bot))
    terminal.report(campaign_json(record), campaign_details(record, Clock().now()), as_json=as_json)


@app.command()
def pause(name: NameArgument, *, bot: OfBot = None, store: Store = None, as_json: AsJson = False) -> None:
    """Let a running broadcast put no more messages. Those that are in the queue are still sent."""
    _report(using_gate(store, lambda gate: steer(gate, name, bot, "pause")), as_json=as_json)


@app.command()
def resume(name: NameArgument, *, bot: OfBot = None, store: Store = None, as_json: AsJson = False) -> None:
    """End a pause. A broadcast of a file whose process has ended goes on here, as by its own command.

    One that was uploaded, or of a query, goes on in tidegate worker. Others of an application go on when that
    is started again.
    """
    record = using_gate(store, lambda gate: to_resume(gate, name, bot, Clock()))
    if record.file is None or record.state not in {"stopped", "delivering"}:
        _report(using_gate(store, lambda gate: steer(gate, record.name, record.bot, "run")), as_json=as_json)
        return
    from tidegate.cli.broadcast import run  # noqa: PLC0415  (slow to import)
    from tidegate.cli.broadcast.file_source import order_of  # noqa: PLC0415

    raise typer.Exit(run.run(order_of(record, record.file, store, as_json=as_json)))


@app.command()
def cancel(
    name: NameArgument, *, bot: OfBot = None, yes: Yes = False, store: Store = None, as_json: AsJson = False
) -> None:
    """End a broadcast, and cancel its messages that wait. Asks first."""
    record = using_gate(store, lambda gate: find_campaign(gate, name, bot))
    if not record.has_ended:
        waiting = amount(record.counts.get("waiting", 0), "message")
        confirm(f"Cancel broadcast {record.name} and its {waiting} that wait?", yes=yes)
    _report(using_gate(store, lambda gate: steer(gate, record.name, record.bot, "cancel")), as_json=as_json)


async def to_resume(gate: "Tidegate", name: str, bot: int | None, clock: Clock) -> CampaignRecord:
    """Return the broadcast. One of a file that seems to run may have been killed a moment ago."""
    record = found = await find_campaign(gate, name, bot)
    while record.file and found.state in {"running", "paused"} and found.changed_at == record.changed_at:
        await clock.sleep(LOOK_SECONDS)
        found = await find_campaign(gate, record.name, record.bot)
    if found.state == "stopped":
        await gate.core.store.campaigns.ask(found.bot, found.name, "run")  # it may have been paused
    return found


async def steer(gate: "Tidegate", name: str, bot: int | None, wish: CampaignWish) -> CampaignRecord:
    return await gate.core.campaign_control.steer(await whole_name(gate, name, bot), wish, bot)


def _report(record: CampaignRecord, *, as_json: bool) -> None:
    lines = [f"Broadcast {record.name} of bot {record.bot} is {record.state}."]
    if record.state == "stopped":
        lines.append(f"Its process has ended. It goes on with {how_to_resume(record)}.")
    terminal.report(campaign_json(record), *lines, as_json=as_json)


async def find_campaign(gate: "Tidegate", name: str, bot: int | None) -> CampaignRecord:
    """Return the broadcast that has this name, or the only one whose name begins so."""
    return await gate.campaign(await whole_name(gate, name, bot), bot=bot)


async def whole_name(gate: "Tidegate", name: str, bot: int | None) -> str:
    """Return the name that is meant by its beginning. Raises BadInputError if that is not clear."""
    known = {one.name for one in await gate.core.store.campaigns.all() if bot is None or one.bot == bot}
    begins = sorted(one for one in known if name and one.startswith(name))
    return name if name in known or not begins else only_one(name, begins)


def campaign_json(record: CampaignRecord) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    for private in ("source", "file", "stored"):
        plain.pop(private, None)
    return plain | {
        "ended_at": record.ended_at,
        "total": record.total,
        "trouble": record.trouble,
        "counts": dict(record.counts),
        "resumable": record.is_resumable or _is_file_here(record),
    }


def campaign_table(records: list[CampaignRecord], now: float) -> Table:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for name in ("name", "bot", "state", "delivered", "waiting", "started"):
        rows.add_column(name, no_wrap=True, justify="right" if name in {"delivered", "waiting"} else "left")
    rows.add_column("audience", no_wrap=True, overflow="ellipsis", ratio=1)
    for record in records:
        rows.add_row(
            Text(record.name),
            str(record.bot),
            Text(record.state, STYLES.get(record.state, "")),
            f"{record.counts.get('delivered', 0):,}",
            f"{record.counts.get('waiting', 0):,}",
            short_moment(record.started_at, now),
            Text(printable(record.audience)),
        )
    return rows


def campaign_details(record: CampaignRecord, now: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    facts: dict[str, object] = {
        "name": record.name,
        "bot": record.bot,
        "state": record.state,
        "audience": record.audience,
        "started": moment(record.started_at, now),
        "ended": None if record.ended_at is None else moment(record.ended_at, now),
        "rows": None if record.total is None else f"{record.total:,}",
        **{name: f"{count:,}" for name, count in record.counts.items() if count},
        "trouble": record.trouble,
    }
    if record.state == "stopped":
        facts["to resume"] = how_to_resume(record)
    if any(record.counts.get(name) for name in ("dead", "parked", "expired", "cancelled")):
        facts["not reached"] = f"tidegate broadcast missed {record.name}"
    for name, value in facts.items():
        if value is not None:
            grid.add_row(name, Text(printable(value)))
    return grid


def how_to_resume(record: CampaignRecord) -> str:
    if _is_file_here(record):
        return f"tidegate broadcast resume {record.name}"
    if record.is_resumable:
        return "tidegate worker, or gate.campaigns(resume=True) in its application"
    return "the same command again" if record.file is not None else "the same call of gate.broadcast again"


def _is_file_here(record: CampaignRecord) -> bool:
    """Return whether `resume` can go on with it, if its file is as it was."""
    is_unfinished = record.state in {"running", "paused", "stopped", "delivering"}
    return record.file is not None and record.file.path != "-" and is_unfinished
