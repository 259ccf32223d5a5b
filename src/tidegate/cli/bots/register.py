"""`tidegate bot list` and `remove`."""

import re
from typing import Any

from rich import box
from rich.table import Table

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.selection import amount
from tidegate.cli.stores import counts_of, using_gate
from tidegate.errors import BadInputError
from tidegate.model import BotId

SHOWN = ("waiting", "dead", "parked")
_NUMBER = re.compile(r"(\d{1,15})(?::.*)?", re.DOTALL)


def show_list(store: str | None, *, as_json: bool) -> None:
    bots = using_gate(store, _bots)
    if as_json:
        terminal.put_json({"bots": bots})
    elif bots:
        terminal.put(table(bots))
    else:
        terminal.put_line("No bot is registered: begin with tidegate bot add")


async def _bots(gate: Tidegate) -> list[dict[str, Any]]:
    counts = await counts_of(gate)
    return [
        {"bot": bot.id, "api_url": bot.api_url, **{name: counts[bot.id, name] for name in SHOWN}}
        for bot in gate.bots()
    ]


def table(bots: list[dict[str, Any]]) -> Table:
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    rows.add_column("bot", no_wrap=True)
    rows.add_column("address", overflow="fold")
    for name in SHOWN:
        rows.add_column(name, justify="right", no_wrap=True)
    for bot in bots:
        rows.add_row(f"{bot['bot']}:…", bot["api_url"], *(f"{bot[name]:,}" for name in SHOWN))
    return rows


def remove(store: str | None, number: str, *, yes: bool, as_json: bool) -> None:
    """What waits for the bot stays; without a token it dies when its turn comes, and can be replayed."""
    bot = number_of(number)
    known = {each["bot"]: each for each in using_gate(store, _bots)}
    if bot not in known:
        names = ", ".join(f"{each}:…" for each in known) or "none"
        raise BadInputError(f"bot {bot} is not registered in this store: it has {names}")
    waiting = known[bot]["waiting"]
    if waiting:
        subject = f"{amount(waiting, 'message')} of {bot}:… {'waits' if waiting == 1 else 'wait'}"
        make_sure(f"{subject} and could not be sent without its token. Remove the bot?", yes=yes)
    using_gate(store, lambda gate: gate.remove_bot(bot))
    if as_json:
        terminal.put_json({"bot": bot, "waiting": waiting})
    else:
        left = amount(waiting, "of its messages waits", "of its messages wait")
        terminal.put_line(f"{bot}:… is removed" + (f"; {left}" if waiting else ""))


def number_of(text: str) -> BotId:
    """`42`, or `42:…` as it is shown."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise BadInputError("ID must be a bot's number, such as 42: see tidegate bot list")
    return BotId(int(match[1]))
