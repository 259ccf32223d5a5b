"""The metric families of a gate: names, labels, help texts. docs/reference/metrics.md is made of this table.

No label names a chat or a user, so that the number of series is bounded.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from tidegate.ops.loop_delay import BUCKETS as LOOP_BUCKETS

Kind = Literal["counter", "gauge", "histogram"]
# How the values of several processes become one: counted by each process, or one fact that each reports.
Across = Literal["sum", "max", "min"]


class Family(NamedTuple):
    """One metric family. Samples of a counter end in `_total`, which its name leaves out."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper bounds; the last one, without a bound, is left out
    across: Across = "sum"

    @property
    def shown_name(self) -> str:
        """The name as the text format has it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def sample_names(self) -> tuple[str, ...]:
        """The names that an expression may ask for."""
        if self.kind != "histogram":
            return (self.shown_name,)
        return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, "counter", help_text, labels)


def _gauge(name: str, help_text: str, *labels: str, across: Across = "max") -> Family:
    return Family(name, "gauge", help_text, labels, across=across)


def _histogram(name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name, "histogram", help_text, labels, buckets)


_WIRE = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0)
_QUEUE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
_TURN = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CYCLE = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LATE = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86_400.0)
_JOB = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


ACCEPTED: Final = _counter(
    "tidegate_messages_accepted", "Messages taken into the outbox by this process.", "bot", "priority"
)
ENDED: Final = _counter(
    "tidegate_messages_ended",
    "Messages that ended in this process: delivered, dead, parked, expired, cancelled, replaced.",
    "bot",
    "state",
)
DEAD: Final = _counter(
    "tidegate_messages_dead", "Messages that died in this process, by reason.", "bot", "reason"
)
QUEUE_TIME: Final = _histogram(
    "tidegate_queue_time_seconds",
    "Seconds from when a message was accepted, or may go by its not_before, to its end. Without cancelled and"
    " replaced ones.",
    _QUEUE,
    "priority",
)


SENDS: Final = _counter(
    "tidegate_sends",
    "Attempts at calls of the Bot API: queued messages and direct calls. Outcomes: delivered, refused (429),"
    " retried, unknown (no answer), migrated, dead, not_sent (never left this process), unreachable.",
    "bot",
    "kind",
    "outcome",
)
CALL_DURATION: Final = _histogram(
    "tidegate_call_duration_seconds",
    "Seconds that a call of the Bot API took on the wire, by the family of its method.",
    _WIRE,
    "family",
)
TURN_WAIT: Final = _histogram(
    "tidegate_turn_wait_seconds", "Seconds that direct calls waited for their turn of the limits.", _TURN
)
GIVEN_UP: Final = _counter(
    "tidegate_direct_calls_given_up",
    "Direct calls that were not made, as their turn would have come later than they wanted to wait.",
    "bot",
)
REFUSALS: Final = _counter(
    "tidegate_refusals", "Calls that Telegram refused with 429, by what that has closed.", "bot", "closes"
)
SERVER_ERRORS: Final = _counter("tidegate_server_errors", "Calls that were answered with 5xx.", "bot")
OUTAGES: Final = _counter("tidegate_outages", "Times at which a bot could no longer send.", "bot")
LIMIT_CHANGES: Final = _counter(
    "tidegate_limit_changes",
    "Learned limits that were cut after a 429, raised after quiet time, or restored to the rule.",
    "bot",
    "scope",
    "change",
)
CLOSED_CHATS: Final = _gauge(
    "tidegate_closed_chats",
    "Chats that are closed by a 429 which this process has heard.",
    "bot",
    across="sum",
)


UPDATES: Final = _counter("tidegate_updates_received", "Updates that came in, by webhook or polling.", "bot")
POLL_CYCLES: Final = _counter("tidegate_poll_cycles", "Cycles that a poller has completed.", "poller")
POLL_REQUESTS: Final = _counter("tidegate_poll_requests", "Requests of a poller to its API.", "poller")
POLL_ASKED: Final = _counter(
    "tidegate_poll_asked", "Subscriptions that a poller has asked about, in all its cycles.", "poller"
)
POLL_DURATION: Final = _histogram(
    "tidegate_poll_duration_seconds", "Seconds that a cycle of a poller took.", _CYCLE, "poller"
)
REMINDERS: Final = _counter("tidegate_reminders_fired", "Reminders that were put into the outbox.")
REMINDER_LATENESS: Final = _histogram(
    "tidegate_reminder_lateness_seconds",
    "Seconds by which the latest reminder of each batch was put too late.",
    _LATE,
)
JOBS: Final = _counter(
    "tidegate_jobs_ended", "Attempts at jobs that have ended: done, dead, or retry.", "job", "outcome"
)
JOB_DURATION: Final = _histogram(
    "tidegate_job_duration_seconds", "Seconds that an attempt at a job ran.", _JOB, "job"
)


READY: Final = _gauge(
    "tidegate_ready", "1 if this process does all it promises, as /readyz says.", across="min"
)
PROGRESS: Final = _gauge(
    "tidegate_worker_last_progress_timestamp_seconds",
    "When the worker of this process last sent something, or had nothing to send. Absent without a worker.",
)
LOOP_DELAY: Final = _histogram(
    "tidegate_loop_delay_seconds",
    "How late the event loop runs what is due. A sample is a moment: a long block counts for each one in it.",
    LOOP_BUCKETS,
)
INCIDENTS: Final = _counter(
    "tidegate_incidents", "Blocked loops, slow calls, growing memory and spikes of errors.", "kind"
)
SPOOLED: Final = _gauge(
    "tidegate_spooled_messages",
    "Messages that wait on the disk of this process until the store can be reached.",
    across="sum",
)
HISTORY_WRITTEN: Final = _counter("tidegate_history_rows_written", "Rows of the history that were stored.")
HISTORY_DROPPED: Final = _counter(
    "tidegate_history_rows_dropped", "Rows of the history that are lost, as the spool was full."
)
HISTORY_WAITING: Final = _gauge(
    "tidegate_history_rows_waiting", "Rows of the history that wait in memory to be stored.", across="sum"
)
HISTORY_SPOOLED: Final = _gauge(
    "tidegate_history_spooled_bytes",
    "Bytes of history on disk that wait until the database can be reached.",
    across="sum",
)
CPU: Final = _counter("process_cpu_seconds", "CPU seconds that this process has used.")
MEMORY: Final = _gauge("process_resident_memory_bytes", "Resident memory of this process.", across="sum")
VIRTUAL_MEMORY: Final = _gauge(
    "process_virtual_memory_bytes", "Virtual memory of this process.", across="sum"
)
OPEN_FILES: Final = _gauge("process_open_fds", "Open file descriptors of this process.", across="sum")
MOST_FILES: Final = _gauge(
    "process_max_fds", "Open file descriptors that this process may have.", across="min"
)
STARTED: Final = _gauge("process_start_time_seconds", "When this process was started.")

# The store and the database: facts that every process reports alike.

STORE_UP: Final = _gauge("tidegate_store_up", "1 if the store answers this process.", "store", across="min")
DATABASE_UP: Final = _gauge(
    "tidegate_database_up",
    "1 if the SQL database answers this process. Absent while it is not used.",
    across="min",
)
QUEUE: Final = _gauge(
    "tidegate_queue_messages",
    "Messages in the outbox, by state; queued ones also by priority.",
    "state",
    "priority",
)
OLDEST: Final = _gauge(
    "tidegate_queue_oldest_age_seconds", "Age of the oldest message that waits and may go; 0 if none does."
)
BOT_WAITING: Final = _gauge("tidegate_bot_waiting_messages", "Messages of a bot that wait.", "bot")
BOT_LIMIT: Final = _gauge(
    "tidegate_bot_limit_calls_per_second",
    "Calls a second that a bot may make: by its rule or own limit (nominal), and as 429s taught (learned).",
    "bot",
    "limit",
    across="min",
)
BOT_CLOSED: Final = _gauge(
    "tidegate_bot_closed_seconds", "Seconds for which a bot is still closed by a 429; 0 if it is open.", "bot"
)
BOT_UNREACHABLE: Final = _gauge("tidegate_bot_unreachable", "1 while a bot cannot send: an outage.", "bot")
BUILD: Final = _gauge(
    "tidegate_build_info", "Always 1; the version of Tidegate and of Python.", "version", "python"
)

SECTIONS: Final[Mapping[str, tuple[Family, ...]]] = {
    "Messages": (ACCEPTED, ENDED, DEAD, QUEUE_TIME),
    "Calls of the Bot API": (
        *(SENDS, CALL_DURATION, TURN_WAIT, GIVEN_UP, REFUSALS, SERVER_ERRORS, OUTAGES),
        *(LIMIT_CHANGES, CLOSED_CHATS),
    ),
    "Updates, polling, reminders, jobs": (
        *(UPDATES, POLL_CYCLES, POLL_REQUESTS, POLL_ASKED, POLL_DURATION),
        *(REMINDERS, REMINDER_LATENESS, JOBS, JOB_DURATION),
    ),
    "The process": (
        *(READY, PROGRESS, LOOP_DELAY, INCIDENTS, SPOOLED),
        *(HISTORY_WRITTEN, HISTORY_DROPPED, HISTORY_WAITING, HISTORY_SPOOLED),
        *(CPU, MEMORY, VIRTUAL_MEMORY, OPEN_FILES, MOST_FILES, STARTED, BUILD),
    ),
    "The store and the database": (
        *(STORE_UP, DATABASE_UP, QUEUE, OLDEST, BOT_WAITING, BOT_LIMIT, BOT_CLOSED, BOT_UNREACHABLE),
    ),
}
FAMILIES: Final = tuple(family for families in SECTIONS.values() for family in families)


class OldName(NamedTuple):
    """A metric under the name that it had before Tidegate: a number without labels."""

    name: str
    help: str
    of: Family  # whose samples are added up


OLD_NAMES: Final = (
    OldName("telegram_429_count", "429s heard from Telegram.", REFUSALS),
    OldName("telegram_5xx_count", "5xx answers of Telegram.", SERVER_ERRORS),
    OldName("telegram_rate_limited_drops", "Direct calls that were not made in time.", GIVEN_UP),
)
