"""getUpdates of an application: into the inbox, by the process that leads."""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from telegram.request import BaseRequest, RequestData

from tidegate.adapters.ptb.intake import Intake
from tidegate.inbound.updates import Json

Answer = tuple[int, bytes]

NOTHING: Final = (HTTPStatus.OK.value, b'{"ok":true,"result":[]}')


class FetchingRequest(BaseRequest):
    """Around the request that an application polls with.

    What comes is held before the application hears of it, and that hears only how far it has come: it moves
    its offset.
    """

    def __init__(self, request: BaseRequest) -> None:
        self._request = request
        self._intake: Intake | None = None
        self._is_polling: Callable[[], bool] = bool

    def follow(self, intake: Intake, is_polling: Callable[[], bool]) -> None:
        self._intake, self._is_polling = intake, is_polling

    @property
    def read_timeout(self) -> float | None:
        return self._request.read_timeout

    async def initialize(self) -> None:
        await self._request.initialize()

    async def shutdown(self) -> None:
        await self._request.shutdown()

    async def do_request(  # type: ignore[override]  # timeouts go on as they came
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        **timeouts: Any,  # noqa: ANN401
    ) -> Answer:
        call = functools.partial(self._request.do_request, url, method, request_data, **timeouts)
        if self._intake is not None and self._is_polling():
            return await self._fetch(call, self._intake)
        if self._intake is not None and self._intake.has_polled:
            # At its end an updater confirms what it has got. It may lead no more, and would disturb another;
            # what comes again is known.
            return NOTHING
        return await call()  # somebody's own

    @staticmethod
    async def _fetch(call: Callable[[], Any], intake: Intake) -> Answer:
        answer: Answer = NOTHING

        async def fetch(_offset: int | None) -> list[Json]:
            """From the application's offset on: that is after what was held."""
            nonlocal answer
            answer = await call()
            return _updates_in(*answer)

        await intake.poll(fetch)
        updates = _updates_in(*answer)
        if not updates:
            return answer
        intake.fetched = updates[-1]["update_id"]
        body = {"ok": True, "result": [{"update_id": intake.fetched}]}
        return HTTPStatus.OK.value, msgspec.json.encode(body)


class _Answered(msgspec.Struct):
    result: list[Json] = []


def _updates_in(status: int, body: bytes) -> list[Json]:
    """None in what is no answer: the application says what is wrong with it."""
    if status != HTTPStatus.OK:
        return []
    try:
        return msgspec.json.decode(body, type=_Answered).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
