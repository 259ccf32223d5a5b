"""Sentry: errors and incidents are reported there, without secrets and without personal text.

The SDK sends from a thread, with a queue of 100 reports: whatever does not fit is dropped. So a Sentry that
is down or hangs neither blocks nor slows a bot. At the end of the process it has FLUSH_SECONDS to send the
rest. An application that has called `sentry_sdk.init` keeps its own settings; only incidents are added.
"""

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast
from weakref import WeakSet

import sentry_sdk
from sentry_sdk.integrations import DidNotEnable, Integration
from sentry_sdk.integrations.argv import ArgvIntegration
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.integrations.modules import ModulesIntegration
from sentry_sdk.types import Event as SdkEvent
from sentry_sdk.types import Hint as SdkHint
from sentry_sdk.utils import BadDsn

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.incidents import Incident, IncidentLog
from tidegate.ops.event_privacy import (
    Event,
    clean_breadcrumb,
    clean_error,
    clean_transaction,
    incident_event,
)
from tidegate.pacing.bucket import Bucket
from tidegate.settings import Settings

FLUSH_SECONDS: Final = 2.0  # that the end of the process waits for reports, at most
# Of log lines: at once, and each second. A report with its traceback takes about 5 ms of the event loop.
REPORTED_LINES: Final = Bucket(10, 1)
_reported: Final = WeakSet[IncidentLog]()


def start_sentry(settings: Settings, incidents: IncidentLog, clock: Clock) -> bool:
    """Report errors and incidents from now on; return False if SENTRY_DSN is not set, and nothing is sent.

    Raises BadInputError if SENTRY_DSN or a sample rate cannot be used.
    """
    if not sentry_sdk.get_client().is_active():
        if settings.sentry_dsn is None:
            return False
        _initialise(settings, clock)
    if incidents not in _reported:
        _reported.add(incidents)
        incidents.subscribe(report_incident)
    return True


def report_incident(incident: Incident) -> None:
    """Report one incident. It is queued; nothing blocks."""
    sentry_sdk.capture_event(cast("SdkEvent", incident_event(incident)))


def _initialise(settings: Settings, clock: Clock) -> None:
    texts, dsn = settings.tidegate_sentry_texts, settings.sentry_dsn
    traces = sample_rate("SENTRY_TRACES_SAMPLE_RATE", settings.sentry_traces_sample_rate)
    profiles = sample_rate("SENTRY_PROFILES_SAMPLE_RATE", settings.sentry_profiles_sample_rate)
    options: dict[str, Any] = {
        "environment": settings.sentry_environment,
        "release": settings.sentry_release,
        "traces_sample_rate": traces or None,
        "profiles_sample_rate": profiles or None,
        "shutdown_timeout": FLUSH_SECONDS,
        "integrations": _integrations(clock),
        # The list of installed packages would block the event loop for 200 ms with the first error.
        "disabled_integrations": [ArgvIntegration, ModulesIntegration],
        # They cost time with every query and request, and serve spans only.
        "auto_enabling_integrations": traces > 0,
        # `send_default_pii` is off unless it is given, and newer SDKs warn of it.
        "include_local_variables": False,
        "max_request_body_size": "never",
        "auto_session_tracking": False,
        "spotlight": False,
        "trace_propagation_targets": [],  # no header is added to calls of Telegram and other APIs
        "before_send": lambda event, hint: _sent(clean_error, event, hint, texts=texts),
        "before_send_transaction": lambda event, _: _sent(clean_transaction, event),
        "before_breadcrumb": lambda crumb, _: clean_breadcrumb(crumb),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of profiles_sample_rate, which users know
        try:
            sentry_sdk.init(dsn.get_secret_value() if dsn else None, **options)
        except BadDsn:
            raise BadInputError(
                "SENTRY_DSN is not the address of a project: copy it from the project's settings at Sentry,"
                " https://key@host/number"
            ) from None


def sample_rate(variable: str, text: str | None) -> float:
    """Read a share between 0 and 1. Raises BadInputError that names the variable."""
    try:
        rate = float(text or 0)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise BadInputError(f"{variable} is not a share: write a number from 0 (nothing) to 1 (all)")
    return rate


def _sent(clean: Callable[..., Event], event: SdkEvent, *more: SdkHint, **options: bool) -> SdkEvent:
    return cast("SdkEvent", clean(event, *more, **options))


def _integrations(clock: Clock) -> list[Integration]:
    lines = LoggingIntegration(level=None)  # no log line becomes a breadcrumb: it may quote anything
    if (handler := lines._handler) is not None:  # noqa: SLF001  (before an event is made, which takes time)
        handler.addFilter(_ReportLimit(clock))
    return [lines, AtexitIntegration(callback=lambda _pending, _timeout: None), *_web_frameworks()]


def _web_frameworks() -> list[Integration]:
    """Return the integrations that are installed. FastAPI's needs Starlette's."""
    found: list[Integration] = []
    with suppress(DidNotEnable):
        from sentry_sdk.integrations.starlette import StarletteIntegration  # noqa: PLC0415

        found.append(StarletteIntegration())
        from sentry_sdk.integrations.fastapi import FastApiIntegration  # noqa: PLC0415

        found.append(FastApiIntegration())
    return found


class _ReportLimit(logging.Filter):
    """Lets 10 log lines at once become reports, and one more each second: a storm of errors costs little."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._full_at = clock, 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        self._full_at, wait = REPORTED_LINES.take(self._full_at, self._clock.monotonic())
        return wait == 0
