"""Why a broadcast stands still though nothing is wrong: somebody has paused its bot, or its last chats."""

from typing import Final

from tidegate.cli.broadcast.job import Job
from tidegate.cli.stores import paused_of

FEW: Final = 1_000  # messages: while more wait, chats are not looked at


class Pauses:
    """Says once that there is a pause, and again only after it was over."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._said: str | None = None

    async def tell(self, waiting: int) -> None:
        line = await self._line(waiting)
        if line is not None and line != self._said:
            self._job.say(line)
        self._said = line

    async def _line(self, waiting: int) -> str | None:
        bot, held = self._job.bot, await paused_of(self._job.gate, chats=waiting <= FEW)
        chats = [chat for paused, chat in held if paused == bot]
        if None in chats:
            return f"bot {bot} is paused: nothing leaves until tidegate queue resume --bot {bot}"
        if waiting <= len(chats):  # before that, others move
            return (
                f"{len(chats):,} chats of bot {bot} are paused: what is for them waits (tidegate queue stats)"
            )
        return None
