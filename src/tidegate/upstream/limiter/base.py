"""Who may ask now. One contract suite runs on every kind of limiter."""

from typing import Protocol

from tidegate.model import Rate


class Limiter(Protocol):
    """The limit of one API and token: n slots, each free again W seconds after the answer to its request."""

    @property
    def rate(self) -> Rate:
        """What is allowed now: the rule, or less where a 429 has taught so."""
        ...

    async def take(self, *, background: bool = False) -> float:
        """Wait for a slot; the seconds that it took. First come, first served, background after all others.

        Background leaves one slot free (if there are two), for whoever comes. One that is cancelled while
        it waits has taken nothing.
        """
        ...

    async def answered(self) -> None:
        """The answer came, or none will: the slot begins to cool."""

    async def give_back(self) -> None:
        """The request never left: the slot is free at once."""

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        """Nobody takes a slot for so long, in any process. `refused`: by a 429, from which to learn."""

    @property
    def closed_for(self) -> float:
        """Seconds until it opens again, as this process knows it; 0.0 while it is open."""
        ...
