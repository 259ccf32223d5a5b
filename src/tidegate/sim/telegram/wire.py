"""A wire of delivery to the simulated Telegram in this process, without HTTP: for virtual time."""

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.clock import Clock
from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.sim.faults import ConnectionCut
from tidegate.sim.telegram.telegram import SimulatedTelegram


class TelegramWire:
    """Takes the place of `BotApi`. It takes no files."""

    def __init__(self, telegram: SimulatedTelegram, clock: Clock, *, timeout: float = 20.0) -> None:
        self._telegram = telegram
        self._clock = clock
        self._timeout = timeout

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,  # noqa: ARG002  (there is one Telegram here)
        deadline: float,
        on_written: Callable[[], None] | None = None,
    ) -> ApiAnswer | NoAnswer:
        if self._clock.monotonic() > deadline:
            return NoAnswer(left=False, reason="late")
        if on_written is not None:
            on_written()
        try:
            async with self._clock.timeout(self._timeout):
                answer = await self._telegram.call(token, method, params)
        except ConnectionCut:
            return NoAnswer(left=True, reason="disconnected")
        except TimeoutError:
            return NoAnswer(left=True, reason="timeout")
        return ApiAnswer(answer.status, None if answer.raw is not None else answer.body)

    async def close(self) -> None:
        pass
