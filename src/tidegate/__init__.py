"""Tidegate stands between a Telegram bot and everything that limits it.

Everything that users need is importable from here, the filters of NocoDB
from `tidegate.nocodb`, the simulators from `tidegate.sim`. Deeper paths are
internal.
"""

from typing import TYPE_CHECKING, Final

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.adapters.aiogram.flows import FlowExecutor
    from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
    from tidegate.adapters.ptb import CallOptions, TidegateLimiter
    from tidegate.bots.registry import Bot, BotInfo
    from tidegate.broadcast.campaign import Campaign
    from tidegate.broadcast.progress import Progress
    from tidegate.clock import Clock
    from tidegate.database.audience import sql
    from tidegate.errors import (
        BadInputError,
        ClosedError,
        DeadError,
        ExpiredError,
        LimitedError,
        MissingExtraError,
        NotDeliveredError,
        NotTheSenderError,
        OutcomeUnknownError,
        PartlyDoneError,
        StoreAwayError,
        StoreError,
        StoreFullError,
        TidegateError,
        UpstreamAwayError,
        UpstreamError,
        UpstreamGarbledError,
        UpstreamRefusedError,
        UpstreamUnknownError,
        WithdrawnError,
        WrongKeyError,
    )
    from tidegate.flows import (
        Button,
        Flow,
        FlowBuilder,
        FlowError,
        Poll,
        Texts,
        Timeout,
        Transition,
        Work,
        load_flow,
        read_texts,
    )
    from tidegate.flows.events import FlowEvent, WorkDone
    from tidegate.flows.executor import WorkContext
    from tidegate.gate import Tidegate
    from tidegate.inbound.signed_hooks import HmacSignature, HookEvent
    from tidegate.inbound.throttle import Throttle, Throttled, ThrottleRules
    from tidegate.inbound.updates import describe_update
    from tidegate.inbound.webhook_app import webhook_secret
    from tidegate.incidents import Incident
    from tidegate.jobs.job import Job
    from tidegate.jobs.jobs import Jobs, JobTicket
    from tidegate.jobs.record import JobRecord, JobState
    from tidegate.model import File, Message, Priority, Rate, Record, State
    from tidegate.nocodb import NocoDb, Table
    from tidegate.ops.loop_delay import LoopDelay
    from tidegate.outbox.port import OutboxStats, StoreHealth
    from tidegate.outbox.tickets import LiveTicket, Receipt
    from tidegate.pacing.bucket import Bucket
    from tidegate.pacing.rules import Rules
    from tidegate.pacing.window import Window
    from tidegate.polling import (
        BatchPoller,
        DeltaPoller,
        News,
        Subscription,
        UserPoller,
        changes,
        checks,
        show,
        waiting,
    )
    from tidegate.polling.stats import PollingStats
    from tidegate.reminders.reminder import QuietHours, Reminder, Spread
    from tidegate.reminders.reminders import Reminders
    from tidegate.reminders.scheduler import DueReminder
    from tidegate.settings import Settings
    from tidegate.upstream.client import Upstream
    from tidegate.upstream.request_log import RequestPrinter

__all__ = [
    "BadInputError",
    "BatchPoller",
    "Bot",
    "BotInfo",
    "Bucket",
    "Button",
    "CallOptions",
    "Campaign",
    "Clock",
    "ClosedError",
    "DeadError",
    "DeltaPoller",
    "DueReminder",
    "ExpiredError",
    "File",
    "Flow",
    "FlowBuilder",
    "FlowError",
    "FlowEvent",
    "FlowExecutor",
    "HmacSignature",
    "HookEvent",
    "Incident",
    "Job",
    "JobRecord",
    "JobState",
    "JobTicket",
    "Jobs",
    "LimitedError",
    "LiveTicket",
    "LoopDelay",
    "Message",
    "MissingExtraError",
    "News",
    "NocoDb",
    "NotDeliveredError",
    "NotTheSenderError",
    "OutboxStats",
    "OutcomeUnknownError",
    "PartlyDoneError",
    "Poll",
    "PollingStats",
    "Priority",
    "Progress",
    "QuietHours",
    "Rate",
    "Receipt",
    "Record",
    "Reminder",
    "Reminders",
    "RequestPrinter",
    "Rules",
    "Settings",
    "Spread",
    "SqliteStorage",
    "State",
    "StoreAwayError",
    "StoreError",
    "StoreFullError",
    "StoreHealth",
    "Subscription",
    "Table",
    "Texts",
    "Throttle",
    "ThrottleRules",
    "Throttled",
    "Tidegate",
    "TidegateError",
    "TidegateLimiter",
    "Timeout",
    "Transition",
    "Upstream",
    "UpstreamAwayError",
    "UpstreamError",
    "UpstreamGarbledError",
    "UpstreamRefusedError",
    "UpstreamUnknownError",
    "UserPoller",
    "Window",
    "WithdrawnError",
    "Work",
    "WorkContext",
    "WorkDone",
    "WrongKeyError",
    "changes",
    "checks",
    "describe_update",
    "load_flow",
    "read_texts",
    "show",
    "sql",
    "waiting",
    "webhook_secret",
]

_HOMES: Final = {
    "adapters.aiogram.flows": ("FlowExecutor",),
    "adapters.aiogram.fsm_storage": ("SqliteStorage",),
    "adapters.ptb": ("CallOptions", "TidegateLimiter"),
    "bots.registry": ("Bot", "BotInfo"),
    "broadcast.campaign": ("Campaign",),
    "broadcast.progress": ("Progress",),
    "database.audience": ("sql",),
    "clock": ("Clock",),
    "errors": (
        "BadInputError",
        "ClosedError",
        "DeadError",
        "ExpiredError",
        "LimitedError",
        "MissingExtraError",
        "NotDeliveredError",
        "NotTheSenderError",
        "OutcomeUnknownError",
        "PartlyDoneError",
        "StoreAwayError",
        "StoreError",
        "StoreFullError",
        "TidegateError",
        "UpstreamAwayError",
        "UpstreamError",
        "UpstreamGarbledError",
        "UpstreamRefusedError",
        "UpstreamUnknownError",
        "WithdrawnError",
        "WrongKeyError",
    ),
    "flows": (
        "Button",
        "Flow",
        "FlowBuilder",
        "FlowError",
        "Poll",
        "Texts",
        "Timeout",
        "Transition",
        "Work",
        "describe_update",
        "load_flow",
        "read_texts",
    ),
    "flows.events": ("FlowEvent", "WorkDone"),
    "flows.executor": ("WorkContext",),
    "gate": ("Tidegate",),
    "inbound.signed_hooks": ("HmacSignature", "HookEvent"),
    "inbound.throttle": ("Throttle", "Throttled", "ThrottleRules"),
    "inbound.updates": ("describe_update",),
    "inbound.webhook_app": ("webhook_secret",),
    "incidents": ("Incident",),
    "jobs.job": ("Job",),
    "jobs.jobs": ("JobTicket", "Jobs"),
    "jobs.record": ("JobRecord", "JobState"),
    "model": ("File", "Message", "Priority", "Rate", "Record", "State"),
    "ops.loop_delay": ("LoopDelay",),
    "outbox.port": ("OutboxStats", "StoreHealth"),
    "outbox.tickets": ("LiveTicket", "Receipt"),
    "pacing.bucket": ("Bucket",),
    "pacing.rules": ("Rules",),
    "pacing.window": ("Window",),
    "polling": (
        "BatchPoller",
        "DeltaPoller",
        "News",
        "Subscription",
        "UserPoller",
        "changes",
        "checks",
        "show",
        "waiting",
    ),
    "polling.stats": ("PollingStats",),
    "reminders.reminder": ("QuietHours", "Reminder", "Spread"),
    "reminders.reminders": ("Reminders",),
    "reminders.scheduler": ("DueReminder",),
    "settings": ("Settings",),
    "upstream.client": ("Upstream",),
    "nocodb": ("NocoDb", "Table"),
    "upstream.request_log": ("RequestPrinter",),
}

__getattr__ = lazy_names("tidegate", _HOMES)
