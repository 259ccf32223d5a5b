"""Puts the inbox into a python-telegram-bot application that is being built."""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from telegram._utils.defaultvalue import DefaultValue
from telegram.ext import Application, ApplicationBuilder
from telegram.request import BaseRequest, RequestData

from tidegate.adapters.ptb.application_inbox import ApplicationInbox
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.adapters.ptb.update_queue import InboxUpdateQueue
from tidegate.errors import BadInputError
from tidegate.inbound.updates import Json

HttpAnswer = tuple[int, bytes]

NO_UPDATES: Final = (HTTPStatus.OK.value, b'{"ok":true,"result":[]}')


class InboxPollingRequest(BaseRequest):
    """Around the request that an application polls with.

    What comes is held before the application hears of it, and that hears only how far it has come: it moves
    its offset.
    """

    def __init__(self, request: BaseRequest) -> None:
        self._request = request
        self._intake: ApplicationInbox | None = None
        self._is_polling: Callable[[], bool] = bool

    def follow(self, intake: ApplicationInbox, is_polling: Callable[[], bool]) -> None:
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
    ) -> HttpAnswer:
        call = functools.partial(self._request.do_request, url, method, request_data, **timeouts)
        if self._intake is not None and self._is_polling():
            return await self._fetch(call, self._intake)
        if self._intake is not None and self._intake.has_polled:
            # At its end an updater confirms what it has got. It may lead no more, and would disturb another;
            # what comes again is known.
            return NO_UPDATES
        return await call()  # somebody's own

    @staticmethod
    async def _fetch(call: Callable[[], Any], intake: ApplicationInbox) -> HttpAnswer:
        answer: HttpAnswer = NO_UPDATES

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


class _UpdatesBody(msgspec.Struct):
    result: list[Json] = []


def _updates_in(status: int, body: bytes) -> list[Json]:
    """None in what is no answer: the application says what is wrong with it."""
    if status != HTTPStatus.OK:
        return []
    try:
        return msgspec.json.decode(body, type=_UpdatesBody).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


App = Application[Any, Any, Any, Any, Any, Any]
Builder = TypeVar("Builder", bound=ApplicationBuilder[Any, Any, Any, Any, Any, Any])
MakeInbox = Callable[[App, InboxUpdateProcessor], ApplicationInbox]


def add_inbox(builder: Builder, make: MakeInbox) -> None:
    """Its application will get its updates through the intake that is made for it."""
    queue = InboxUpdateQueue()
    handover = InboxUpdateProcessor(queue.offer)
    request = InboxPollingRequest(builder._build_request(get_updates=True))  # noqa: SLF001  (as it was chosen)

    def tie(application: App) -> None:
        if application.update_queue is not queue or application.update_processor is not handover:
            raise BadInputError(
                "equip comes last, before build(): it has an update queue and processor of its own"
            )
        intake, updater = make(application, handover), application.updater
        queue.intake = intake
        request.follow(intake, lambda: updater is not None and updater.running)

    builder.update_queue(queue).concurrent_updates(handover)
    builder._get_updates_request = request  # noqa: SLF001  (by its name it would not go with timeouts)
    _after_build(builder, tie)


def _after_build(builder: Builder, tie: Callable[[App], None]) -> None:
    """Nobody asks an application that was just built; its class is called, though."""
    chosen = DefaultValue.get_value(builder._application_class)  # noqa: SLF001

    def build(**parts: Any) -> App:  # noqa: ANN401  (whatever its class takes)
        application: App = chosen(**parts)
        tie(application)
        return application

    builder.application_class(build, builder._application_kwargs)  # type: ignore[arg-type]  # noqa: SLF001
