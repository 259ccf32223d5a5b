"""`tidegate broadcast missed`: who was not reached by any broadcast of the store, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.broadcast.message import dedup_prefix
from tidegate.cli import terminal
from tidegate.cli.broadcast import app
from tidegate.cli.broadcast.control import NameArgument, find_campaign
from tidegate.cli.broadcast.report import NOT_REACHED, MissedRow, check_place, missed_chats, write_rows
from tidegate.cli.options import AsJson, OfBot, Store
from tidegate.cli.store import store_name, using_gate
from tidegate.cli.terminal import printable
from tidegate.errors import TidegateError
from tidegate.outbox.campaigns import CampaignRecord

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

PAGE: Final = 500  # messages that are read together
Limit = Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Show at most this many.")]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Write all of them into this CSV file, as broadcast run does."
    ),
]


class Missed(NamedTuple):
    campaign: CampaignRecord
    chats: list[MissedRow]


@app.command()
def missed(
    name: NameArgument,
    *,
    limit: Limit = 20,
    report: Report = None,
    bot: OfBot = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List who was not reached: chats whose message is dead, parked, expired or cancelled, and why."""
    if report is not None:
        check_place(report, read=(), store=store_name(store))
    found = using_gate(store, lambda gate: find_missed(gate, name, bot))
    if report is not None:
        _write(report, found.chats)
    shown, more = found.chats[:limit], len(found.chats) > limit
    answer = {
        "name": found.campaign.name,
        "bot": found.campaign.bot,
        "count": len(found.chats),
        "missed": [chat._asdict() for chat in shown],
        "more": more,
    }
    terminal.report(answer, *missed_parts(found, shown, report), as_json=as_json)


async def find_missed(gate: "Tidegate", name: str, bot: int | None) -> Missed:
    campaign = await find_campaign(gate, name, bot)
    prefix, chats, cursor, is_first = dedup_prefix(campaign.name), list[MissedRow](), "", True
    while cursor or is_first:
        is_first = False
        page = await gate.outbox.keyed_records(campaign.bot, prefix, NOT_REACHED, cursor=cursor, limit=PAGE)
        chats += missed_chats(page.records, prefix)
        cursor = page.cursor
    return Missed(campaign, chats)


def _write(report: Path, chats: list[MissedRow]) -> None:
    try:
        write_rows(report, chats)
    except OSError as error:
        raise TidegateError(
            f"--report: {printable(str(report))} was not written ({error.strerror})"
        ) from error


def missed_parts(found: Missed, shown: list[MissedRow], report: Path | None) -> list[Table | str]:
    name, count = found.campaign.name, len(found.chats)
    waiting = found.campaign.counts.get("waiting", 0)
    parts: list[Table | str] = [_table(shown)] if shown else [f"Nobody was missed by broadcast {name}."]
    if count > len(shown) and report is None:
        parts.append(f"{count - len(shown):,} more: --report FILE writes all {count:,} into a CSV file.")
    if report is not None:
        parts.append(f"Not reached: {count:,}, listed in {printable(str(report))}.")
    if waiting:
        parts.append(f"{waiting:,} messages of it still wait.")
    return parts


def _table(shown: list[MissedRow]) -> Table:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for column in ("chat", "state", "reason"):
        rows.add_column(column, no_wrap=True)
    for chat in shown:
        rows.add_row(*(Text(printable(value)) for value in chat))
    return rows
