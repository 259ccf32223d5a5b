"""The circuit breaker: whether a server is away, and when to ask it again."""

from tidegate.clock import Clock


class Breaker:
    """Open from the first failure until the server answers again.

    While it is open, one caller in `retry_after` seconds is let through to ask whether it is back. It has
    `probe_seconds` for that, in which the others do not ask.
    """

    def __init__(self, clock: Clock, *, retry_after: float, probe_seconds: float) -> None:
        self._clock = clock
        self._retry_after, self._probe_seconds = retry_after, probe_seconds
        self._opened_at: float | None = None  # monotonic; None while it answers
        self._ask_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    @property
    def open_for(self) -> float:
        """Seconds since the first failure; 0.0 while it is closed."""
        return 0.0 if self._opened_at is None else self._clock.monotonic() - self._opened_at

    @property
    def ask_in(self) -> float:
        """Seconds until it is asked again; 0.0 while it is closed."""
        return max(0.0, self._ask_at - self._clock.monotonic()) if self.is_open else 0.0

    def blocks(self) -> bool:
        """Return whether the caller must not ask it now. While it is open, a caller let through probes."""
        if not self.is_open:
            return False
        if self.ask_in > 0:
            return True
        self._ask_at = self._clock.monotonic() + self._probe_seconds
        return False

    def failed(self) -> bool:
        """It did not answer. Return whether this opened the breaker."""
        now, opens = self._clock.monotonic(), self._opened_at is None
        if opens:
            self._opened_at = now
        self._ask_at = now + self._retry_after
        return opens

    def answered(self) -> float | None:
        """It answered. Return the seconds for which the breaker was open; None if it was closed."""
        if self._opened_at is None:
            return None
        lasted, self._opened_at = self.open_for, None
        return lasted
