"""Attaches a gate to a python-telegram-bot application that is being built."""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from telegram._utils.defaultvalue import DefaultValue
from telegram.ext import ApplicationBuilder
from telegram.request import BaseRequest, RequestData

from tidegate.adapters.attach_options import AttachOptions
from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.application_inbox import ApplicationInbox
from tidegate.adapters.ptb.application_stop import ApplicationStop, stoppable
from tidegate.adapters.ptb.rate_limiter import App, TidegateLimiter
from tidegate.adapters.ptb.throttle import throttle_application
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.adapters.ptb.update_queue import InboxUpdateQueue
from tidegate.errors import BadInputError
from tidegate.inbound.throttle import ThrottleRules
from tidegate.inbound.updates import Json, Order

Builder = TypeVar("Builder", bound=ApplicationBuilder[Any, Any, Any, Any, Any, Any])
HttpAnswer = tuple[int, bytes]

NO_UPDATES: Final = (HTTPStatus.OK.value, b'{"ok":true,"result":[]}')


def attach(gate: Gate, builder: Builder, options: AttachOptions) -> Builder:
    """Give the application that is built a limiter of this gate, and what the options switch on."""
    if not isinstance(builder, ApplicationBuilder):
        raise BadInputError(
            "attach takes aiogram's dispatcher and bots, or the builder of a python-telegram-bot application:"
            f" gate.attach(Application.builder().token(TOKEN)); got {type(builder).__name__}"
        )
    if options.conversations == "store":
        raise BadInputError(
            "conversations of python-telegram-bot are kept by its own persistence:"
            " Application.builder().persistence(…); leave out conversations"
        )
    limiter = TidegateLimiter(gate, max_wait=options.max_wait, takes_over=True)
    if options.is_durable:
        return equip(limiter, builder, grace=options.grace, throttle=options.throttle, order=options.order)

    def connect(application: App) -> None:
        limiter.follow(application)
        if options.throttle:
            rules = options.throttle if isinstance(options.throttle, ThrottleRules) else None
            throttle_application(application, lambda: gate.throttle(rules), gate.send_notice)

    try:
        builder.rate_limiter(limiter)
    except RuntimeError as error:
        raise BadInputError(f"attach takes a builder with a token, not with a bot: {error}") from None
    _call_after_build(builder, connect, ApplicationStop(limiter, options.grace))
    return builder


def equip(
    limiter: TidegateLimiter,
    builder: Builder,
    *,
    grace: float,
    throttle: ThrottleRules | bool,
    order: Order = "user",
) -> Builder:
    """Give the application that is built this limiter and an inbox. Returns the builder."""
    if limiter.has_inbox:
        raise BadInputError("this limiter has an application: each needs its own, as gate.ptb() returns")
    queue = InboxUpdateQueue()
    processor = InboxUpdateProcessor(queue.offer)

    def connect(application: App) -> None:
        if application.update_queue is not queue or application.update_processor is not processor:
            raise BadInputError(
                "attach comes last, before build(): it sets an update queue and an update processor"
            )
        processor.bot = limiter.bots.id_of(application.bot)
        inbox = ApplicationInbox(
            limiter.gate,
            application.bot,
            processor.bot,
            processor,
            grace=grace,
            throttle=throttle,
            order=order,
        )
        limiter.inbox = queue.inbox = inbox
        request.connect(inbox, lambda: (updater := application.updater) is not None and updater.running)

    try:
        builder.rate_limiter(limiter)
        # The application's own request, as it was chosen.
        request = InboxPollingRequest(builder._build_request(get_updates=True))  # noqa: SLF001
        builder.update_queue(queue).concurrent_updates(processor)
    except RuntimeError as error:
        raise BadInputError(f"attach takes a builder with a token, not with a bot: {error}") from None
    builder._get_updates_request = request  # noqa: SLF001  (its setter does not go with timeouts)
    _call_after_build(builder, connect, ApplicationStop(limiter, grace))
    limiter.use_inbox()
    return builder


def _call_after_build(builder: Builder, connect: Callable[[App], None], stop: ApplicationStop) -> None:
    """Wrap the application's class, which is called at the end of `build()`: there is no hook after that."""
    usual = DefaultValue.get_value(builder._application_class)  # noqa: SLF001
    if not isinstance(usual, type):
        raise BadInputError("this builder is attached already: attach it once, with all its options")
    chosen = stoppable(usual, stop)

    def build(**parts: Any) -> App:  # noqa: ANN401  (whatever its class takes)
        application: App = chosen(**parts)
        connect(application)
        return application

    builder.application_class(build, builder._application_kwargs)  # type: ignore[arg-type]  # noqa: SLF001


class InboxPollingRequest(BaseRequest):
    """The request with which an application polls: updates are stored before the application gets the answer.

    That answer holds only the id of the last update, so that the application moves its offset.
    """

    def __init__(self, request: BaseRequest) -> None:
        self._request = request
        self._inbox: ApplicationInbox | None = None
        self._is_polling: Callable[[], bool] = bool

    def connect(self, inbox: ApplicationInbox, is_polling: Callable[[], bool]) -> None:
        self._inbox, self._is_polling = inbox, is_polling

    @property
    def read_timeout(self) -> float | None:
        return self._request.read_timeout

    async def initialize(self) -> None:
        await self._request.initialize()

    async def shutdown(self) -> None:
        await self._request.shutdown()

    async def do_request(  # type: ignore[override]  # timeouts are passed on
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        **timeouts: Any,  # noqa: ANN401
    ) -> HttpAnswer:
        call = functools.partial(self._request.do_request, url, method, request_data, **timeouts)
        if self._inbox is not None and self._is_polling():
            return await self._fetch(call, self._inbox)
        if self._inbox is not None and self._inbox.has_polled:
            # At its end an updater confirms what it has got. This process may no longer be the leader, and
            # would disturb the one that is; updates that come again are deduplicated.
            return NO_UPDATES
        return await call()  # made by the user

    @staticmethod
    async def _fetch(call: Callable[[], Any], inbox: ApplicationInbox) -> HttpAnswer:
        answer: HttpAnswer = NO_UPDATES

        async def fetch(_offset: int | None) -> list[Json]:
            """Use the application's own offset, which is after the stored updates."""
            nonlocal answer
            answer = await call()
            return _updates_in(*answer)

        await inbox.poll(fetch)
        updates = _updates_in(*answer)
        if not updates:
            return answer
        inbox.last_polled = updates[-1]["update_id"]
        body = {"ok": True, "result": [{"update_id": inbox.last_polled}]}
        return HTTPStatus.OK.value, msgspec.json.encode(body)


class _UpdatesBody(msgspec.Struct):
    result: list[Json] = []


def _updates_in(status: int, body: bytes) -> list[Json]:
    """Return the updates, none if the answer cannot be read: the application reports that itself."""
    if status != HTTPStatus.OK:
        return []
    try:
        return msgspec.json.decode(body, type=_UpdatesBody).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
