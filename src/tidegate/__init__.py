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
    from tidegate.adapters.ptb.flows import PtbFlowExecutor
    from tidegate.bots.registry import Bot, BotInfo
    from tidegate.broadcast.campaign import Campaign
    from tidegate.broadcast.progress import Progress
    from tidegate.client import AsyncTidegateClient, TidegateClient
    from tidegate.clock import Clock
    from tidegate.database.audience import sql
    from tidegate.errors import (
        BadInputError,
        BadRowsError,
        ClosedError,
        ConflictError,
        DeadError,
        ExpiredError,
        LimitedError,
        MissingExtraError,
        NotDeliveredError,
        NotTheSenderError,
        OutcomeUnknownError,
        PartlyDoneError,
        ServiceAwayError,
        ServiceError,
        ServiceInputError,
        ServiceRefusedError,
        StoreAwayError,
        StoreError,
        StoreFullError,
        TidegateError,
        UnknownNameError,
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
    from tidegate.history import History, HistoryMessage, HistoryPage, HistoryState, ReplyChain
    from tidegate.inbound.signed_hooks import HmacSignature, HookEvent
    from tidegate.inbound.throttle import Throttle, Throttled, ThrottleRules
    from tidegate.inbound.updates import describe_update
    from tidegate.inbound.webhook_app import webhook_secret
    from tidegate.incidents import Incident
    from tidegate.jobs.job import Job
    from tidegate.jobs.jobs import Jobs, JobTicket
    from tidegate.jobs.record import JobRecord, JobState
    from tidegate.model import BotLimits, File, Message, Priority, Rate, Record, State
    from tidegate.nocodb import NocoDb, Table
    from tidegate.ops.loop_delay import LoopDelay
    from tidegate.ops.metrics import Metrics
    from tidegate.ops.metrics_text import render_metrics
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
    "AsyncTidegateClient",
    "BadInputError",
    "BadRowsError",
    "BatchPoller",
    "Bot",
    "BotInfo",
    "BotLimits",
    "Bucket",
    "Button",
    "CallOptions",
    "Campaign",
    "Clock",
    "ClosedError",
    "ConflictError",
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
    "History",
    "HistoryMessage",
    "HistoryPage",
    "HistoryState",
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
    "Metrics",
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
    "PtbFlowExecutor",
    "QuietHours",
    "Rate",
    "Receipt",
    "Record",
    "Reminder",
    "Reminders",
    "ReplyChain",
    "RequestPrinter",
    "Rules",
    "ServiceAwayError",
    "ServiceError",
    "ServiceInputError",
    "ServiceRefusedError",
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
    "TidegateClient",
    "TidegateError",
    "TidegateLimiter",
    "Timeout",
    "Transition",
    "UnknownNameError",
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
    "render_metrics",
    "show",
    "sql",
    "waiting",
    "webhook_secret",
]

_HOMES: Final = {
    "adapters.aiogram.flows": ("FlowExecutor",),
    "adapters.ptb.flows": ("PtbFlowExecutor",),
    "adapters.aiogram.fsm_storage": ("SqliteStorage",),
    "adapters.ptb": ("CallOptions", "TidegateLimiter"),
    "bots.registry": ("Bot", "BotInfo"),
    "broadcast.campaign": ("Campaign",),
    "broadcast.progress": ("Progress",),
    "database.audience": ("sql",),
    "client": ("AsyncTidegateClient", "TidegateClient"),
    "clock": ("Clock",),
    "errors": (
        "BadInputError",
        "BadRowsError",
        "ClosedError",
        "ConflictError",
        "DeadError",
        "ExpiredError",
        "LimitedError",
        "MissingExtraError",
        "NotDeliveredError",
        "NotTheSenderError",
        "OutcomeUnknownError",
        "PartlyDoneError",
        "ServiceAwayError",
        "ServiceError",
        "ServiceInputError",
        "ServiceRefusedError",
        "StoreAwayError",
        "StoreError",
        "StoreFullError",
        "TidegateError",
        "UnknownNameError",
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
    "history": ("History", "HistoryMessage", "HistoryPage", "HistoryState", "ReplyChain"),
    "inbound.signed_hooks": ("HmacSignature", "HookEvent"),
    "inbound.throttle": ("Throttle", "Throttled", "ThrottleRules"),
    "inbound.updates": ("describe_update",),
    "inbound.webhook_app": ("webhook_secret",),
    "incidents": ("Incident",),
    "jobs.job": ("Job",),
    "jobs.jobs": ("JobTicket", "Jobs"),
    "jobs.record": ("JobRecord", "JobState"),
    "model": ("BotLimits", "File", "Message", "Priority", "Rate", "Record", "State"),
    "ops.loop_delay": ("LoopDelay",),
    "ops.metrics": ("Metrics",),
    "ops.metrics_text": ("render_metrics",),
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
