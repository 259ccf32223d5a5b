"""The network of a python-telegram-bot bot, with the simulator behind it: real bots in virtual time."""

import json
from http import HTTPStatus
from typing import Any

import httpx
from telegram.error import NetworkError, TimedOut
from telegram.request import BaseRequest, RequestData

from tidegate.sim.telegram import ConnectionCut, SimulatedTelegram
from tidegate.sim.telegram.call import Upload

API = "https://api.telegram.org/bot"


class SimulatedRequest(BaseRequest):
    """Fails as `HTTPXRequest` does, with its causes. `slow`: seconds until all of a call has arrived."""

    def __init__(self, telegram: SimulatedTelegram, patience: float = 5.0) -> None:
        self._telegram = telegram
        self._patience = patience
        self.slow = 0.0

    @property
    def read_timeout(self) -> float:
        return self._patience

    async def initialize(self) -> None:
        pass

    async def shutdown(self) -> None:
        pass

    async def do_request(  # type: ignore[override]  # timeouts are its own
        self,
        url: str,
        method: str,  # noqa: ARG002
        request_data: RequestData | None = None,
        **_timeouts: Any,  # noqa: ANN401
    ) -> tuple[int, bytes]:
        token, endpoint = url.removeprefix(API).split("/")
        params = request_data.json_parameters if request_data is not None else {}
        uploads = _uploads(request_data) if request_data is not None else {}
        await self._telegram.clock.sleep(self.slow)
        try:
            async with self._telegram.clock.timeout(self._patience):
                answer = await self._telegram.call(token, endpoint, params, uploads)
        except TimeoutError:
            raise TimedOut from httpx.ReadTimeout("no answer")
        except ConnectionCut:
            raise NetworkError("httpx.ReadError: ") from httpx.ReadError("cut")
        return HTTPStatus(answer.status), answer.raw or json.dumps(answer.body).encode()


def _uploads(data: RequestData) -> dict[str, Upload]:
    files: dict[str, Any] = data.multipart_data
    return {key: Upload(name, mime, content) for key, (name, content, mime) in files.items()}
