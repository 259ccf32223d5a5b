"""The output of a dry run of a broadcast."""

from typing import Any

from tidegate.broadcast.forecast import seconds_to_send
from tidegate.broadcast.message import BroadcastMessage
from tidegate.cli.checked_file import CheckedFile
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.model import Rate


def preview(name: str, checked: CheckedFile[BroadcastMessage], already: int, rate: Rate) -> dict[str, Any]:
    """Build the report of a dry run. `seconds` is how long sending would take."""
    return {
        "dry_run": True,
        "name": name,
        "would_send": max(0, checked.good - already),
        "already": already,
        **checked.report(),
        "seconds": round(seconds_to_send(checked.good - already, rate), 1),
        "rate": str(rate),
        "first": [dict(letter.fields) for letter in checked.samples],
    }


def preview_lines(found: dict[str, Any]) -> list[str]:
    """Return the report of a dry run for a person."""
    lines: list[str] = []
    for message in found["first"]:
        lines += [
            f"to {message['chat_id']}:",
            *(f"  {printable(line)}" for line in message["text"].splitlines()),
        ]
    if found["already"]:
        lines.append(f"{found['already']:,} are already in the store")
    lines.append(
        f"{found['would_send']:,} would be sent, in {span(found['seconds'])} or more "
        f"at the limit of {found['rate']} s; nothing was: this is a dry run"
    )
    return lines
