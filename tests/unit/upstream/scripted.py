"""A transport with scripted answers, which records its requests and their times."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidegate.clock import Clock
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse, UpstreamTransport

Outcome = UpstreamResponse | NoResponse


def answer(status: int = 200, body: Any = None, headers: Mapping[str, str] | None = None) -> UpstreamResponse:  # noqa: ANN401
    return UpstreamResponse(status, headers or {}, b"" if body is None else msgspec.json.encode(body))


class ScriptedTransport(UpstreamTransport):
    """Gives its outcomes one after the other, then 200 with an empty object."""

    def __init__(self, clock: Clock, *outcomes: Outcome, latency: float = 0.1) -> None:
        self.clock, self.latency = clock, latency
        self.outcomes = list(outcomes)
        self.asked: list[UpstreamRequest] = []
        self.at: list[float] = []
        self.closed = False
        self.judge: Callable[[UpstreamRequest], Outcome | None] = lambda _: None

    async def send(self, request: UpstreamRequest) -> Outcome:
        self.asked.append(request)
        self.at.append(round(self.clock.monotonic(), 3))
        outcome = self.judge(request) or (self.outcomes.pop(0) if self.outcomes else answer(body={}))
        await self.clock.sleep(self.latency)
        return outcome

    async def close(self) -> None:
        self.closed = True
