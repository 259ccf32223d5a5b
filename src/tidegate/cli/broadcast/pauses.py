"""Why a broadcast stands still though nothing is wrong: somebody has paused its bot, or its last chats."""

from tidegate.cli.broadcast.job import Job
from tidegate.outbox.sqlite.store import SqliteOutbox


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
        outbox, bot = self._job.gate.outbox, self._job.bot
        if not isinstance(outbox, SqliteOutbox):
            return None  # only this process could have paused it
        chats = [chat for paused, chat in await outbox.pauses() if paused == bot]
        if None in chats:
            return f"bot {bot} is paused: nothing leaves until tidegate queue resume --bot {bot}"
        if waiting <= len(chats):  # before that, others move
            return (
                f"{len(chats):,} chats of bot {bot} are paused: what is for them waits (tidegate queue stats)"
            )
        return None
