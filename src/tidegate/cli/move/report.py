"""What a move did, or would do: in words, and for programs."""

from typing import Any

from tidegate.cli.selection import amount
from tidegate.cli.times import span


def lines(found: dict[str, Any]) -> list[str]:
    """For a person: what went, what stays and where, what to do next."""
    return [*_gone(found), *_bots(found), *_stays(found)]


def _gone(found: dict[str, Any]) -> list[str]:
    where = f"from {found['from']} to {found['to']}"
    if found["dry_run"]:
        return [f"{amount(found['waiting'], 'message')} would move {where}; nothing was changed."]
    told = [f"Moved {amount(found['moved'], 'message')} {where} in {found['seconds']:,.1f} s."]
    if found["known"]:
        told.append(f"{amount(found['known'], 'message was', 'messages were')} there already.")
    if found["duplicates"]:
        which = amount(found["duplicates"], "message was", "messages were")
        told.append(f"{which} dropped: others with the same dedup key are there.")
    if found["updates"]:
        told.append(f"{amount(found['updates'], 'update')} that waited to be handled moved too.")
    if found["subscriptions"]:
        told.append(f"{amount(found['subscriptions'], 'subscription')} moved too.")
    if found["paused"]:
        told.append(f"{amount(found['paused'], 'pause')} kept.")
    if found["waiting"]:
        told.append(f"{amount(found['waiting'], 'message still waits', 'messages still wait')} in the file.")
        told.append("Run the same command again, once nobody puts into the file any more.")
    return told


def _bots(found: dict[str, Any]) -> list[str]:
    told = []
    if found["bots"]:
        word = "would be registered" if found["dry_run"] else "registered"
        told.append(f"Bots {word} there: {_named(found['bots'])}")
    if found["bots_left"]:
        told.append(
            f"Not registered there: {_named(found['bots_left'])}; their messages wait until tidegate bot add."
            f" {found['why_left']}"
        )
    return told


def _stays(found: dict[str, Any]) -> list[str]:
    told = []
    letters = found["dead"] + found["parked"]
    if letters:
        told.append(
            f"{amount(letters, 'dead or parked message')}: tidegate dlq list --store {found['from']};"
            " what is replayed there moves with another run"
        )
    if found["ended"]:
        told.append(f"{amount(found['ended'], 'message')} that ended, known in the file only")
    if found["dedup_keys"]:
        told.append(
            f"{amount(found['dedup_keys'], 'dedup key')} of what has ended or is dead: the same broadcast,"
            " run on Redis, would send to these again"
        )
    if found["closed_for"]:
        closed = span(found["closed_for"])
        told.append(f"What 429s have closed, for another {closed}: start workers there after that")
    return ["Stays behind:", *(f"  {line}" for line in told)] if told else []


def _named(bots: list[int]) -> str:
    return ", ".join(f"{bot}:…" for bot in bots)
