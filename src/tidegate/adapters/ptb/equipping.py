"""Puts the inbox into an application that is being built."""

from collections.abc import Callable
from typing import Any, TypeVar

from telegram._utils.defaultvalue import DefaultValue
from telegram.ext import Application, ApplicationBuilder

from tidegate.adapters.ptb.fetching import FetchingRequest
from tidegate.adapters.ptb.handover import Handover
from tidegate.adapters.ptb.intake import Intake
from tidegate.adapters.ptb.update_queue import UpdateQueue
from tidegate.errors import BadInputError

App = Application[Any, Any, Any, Any, Any, Any]
Builder = TypeVar("Builder", bound=ApplicationBuilder[Any, Any, Any, Any, Any, Any])
Make = Callable[[App, Handover], Intake]


def equip(builder: Builder, make: Make) -> None:
    """Its application will get its updates through the intake that is made for it."""
    queue = UpdateQueue()
    handover = Handover(queue.offer)
    request = FetchingRequest(builder._build_request(get_updates=True))  # noqa: SLF001  (as it was chosen)

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
    _when_built(builder, tie)


def _when_built(builder: Builder, tie: Callable[[App], None]) -> None:
    """Nobody asks an application that was just built; its class is called, though."""
    chosen = DefaultValue.get_value(builder._application_class)  # noqa: SLF001

    def build(**parts: Any) -> App:  # noqa: ANN401  (whatever its class takes)
        application: App = chosen(**parts)
        tie(application)
        return application

    builder.application_class(build, builder._application_kwargs)  # type: ignore[arg-type]  # noqa: SLF001
