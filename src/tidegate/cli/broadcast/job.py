"""What the steps of a broadcast share: the gate, the bot, and the name by which its messages are found."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from rich.console import RenderableType

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.broadcast.report import Counts
from tidegate.clock import Clock
from tidegate.model import BotId


class Job(NamedTuple):
    gate: Tidegate
    bot: BotId
    name: str
    stop: asyncio.Event  # Ctrl-C
    clock: Clock
    as_json: bool

    @property
    def prefix(self) -> str:
        """Of the dedup keys of all its messages, and of no others."""
        return f"broadcast:{self.name}:"

    async def counts(self) -> Counts:
        return Counts.of(await self.gate.outbox.tally(self.bot, self.prefix))

    def say(self, line: str) -> None:
        if self.as_json:
            terminal.note(line)
        else:
            terminal.put_line(line)

    def show(self, report: Mapping[str, object], *pictures: RenderableType) -> None:
        """The report for a program, or the pictures for a person."""
        if self.as_json:
            terminal.put_json(report)
        else:
            for picture in pictures:
                # A text is put as it is: Rich would read what stands in brackets as markup.
                terminal.put_line(picture) if isinstance(picture, str) else terminal.put(picture)
