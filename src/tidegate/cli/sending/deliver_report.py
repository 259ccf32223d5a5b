"""What a worker did between its start and its end."""

from contextlib import suppress
from typing import Any

from tidegate.app import Tidegate
from tidegate.cli.selection import amount
from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import Message
from tidegate.outbox.base import Stats

COUNTED = ("delivered", "parked", "expired", "refused")


class Run:
    """Counts from `start`: the store's own counts go further back. What it tells is of the last `look`.

    Where the store is `shared` with other workers, it tells what was delivered and died here, and for the
    rest what all of them did.
    """

    def __init__(self, gate: Tidegate, clock: Clock, *, shared: bool = False) -> None:
        self.gate, self.clock = gate, clock
        self._before = self.stats = Stats()
        self._started = self._ended = 0.0
        self._over = False
        self._dead = 0
        self._delivered: int | None = None
        gate.on_dead(self._note_dead)
        if shared:
            self._delivered = 0
            gate.on_delivered(self._note_delivered)

    async def start(self) -> None:
        self._before = self.stats = await self.gate.stats()
        self._started = self.clock.monotonic()

    async def look(self) -> None:
        """A store that cannot say it now does not end the worker: the last counts stay."""
        with suppress(StoreError):
            self.stats = await self.gate.stats()

    async def end(self) -> None:
        """The gate is about to close: its counts stay as they are now."""
        self._ended, self._over = self.clock.monotonic(), True
        await self.look()

    async def _note_dead(self, _message: Message, _reason: str) -> None:
        # Letters may be dropped and replayed meanwhile: what died is counted, not what is there.
        self._dead += 1

    async def _note_delivered(self, _message: Message, _result: object) -> None:
        self._delivered = (self._delivered or 0) + 1

    @property
    def seconds(self) -> float:
        return (self._ended if self._over else self.clock.monotonic()) - self._started

    def report(self) -> dict[str, Any]:
        """In the vocabulary of all reports."""
        counts = {name: max(0, getattr(self.stats, name) - getattr(self._before, name)) for name in COUNTED}
        if self._delivered is not None:
            counts["delivered"] = self._delivered
        return {
            **counts,
            "dead": self._dead,
            "waiting": self.stats.waiting,
            "seconds": round(self.seconds, 1),
            "avg_rps": round(counts["delivered"] / self.seconds, 1) if self.seconds else 0.0,
        }

    def line(self) -> str:
        report = self.report()
        flaws = [name for name in ("dead", "parked", "expired", "refused") if report[name]]
        return ", ".join(f"{report[name]:,} {name}" for name in ("delivered", "waiting", *flaws))


def summary(report: dict[str, Any]) -> str:
    rate = f" ({report['avg_rps']:,.1f}/s)" if report["delivered"] else ""
    return (
        f"Delivered {report['delivered']:,} in {report['seconds']:,.1f} s{rate}: {report['dead']:,} dead, "
        f"{report['parked']:,} parked, {report['expired']:,} expired, {report['refused']:,} refused (429); "
        f"{amount(report['waiting'], 'still waits', 'still wait')}"
    )
