"""Where a command listens, and what is said if it cannot."""

import errno
from typing import NamedTuple

from tidegate.errors import BadInputError


class ListenAddress(NamedTuple):
    host: str
    port: int
    prefix: str = "--"  # of the options --host and --port

    def check(self) -> None:
        """Raise BadInputError for an empty host."""
        if not self.host.strip():
            raise BadInputError(
                f"{self.prefix}host: an empty name would mean every network: write 127.0.0.1, or 0.0.0.0"
            )

    def why_not(self, error: OSError) -> str:
        """Say why a server could not listen, and what to do."""
        if error.errno == errno.EADDRINUSE:
            return f"port {self.port} on {self.host} is in use: choose another with {self.prefix}port"
        reason = (error.strerror or "the address cannot be used").lower()
        return (
            f"cannot listen on {self.host}, port {self.port} ({reason}):"
            f" choose others with {self.prefix}host and {self.prefix}port"
        )
