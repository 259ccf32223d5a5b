"""Jobs on workers of Celery: the application, and the executor that sends jobs to its broker.

A message holds the id of a job and its token, nothing else: the record in the database says what is to run,
and when. A broker that is away, or loses a message, loses no job.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from celery import Celery
from kombu.exceptions import KombuError

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.failure import pause_after, scrub
from tidegate.jobs.port import JobExecutor
from tidegate.jobs.record import JobOutcome, JobRecord, JobReturned, JobState
from tidegate.scrubber import scrub_secrets
from tidegate.settings import AMQP_SCHEMES, REDIS_SCHEMES

log = logging.getLogger("tidegate.jobs")

QUEUE: Final = "tidegate"  # not Celery's default: other applications may use the same broker
SENDS_AT_ONCE: Final = 100
CONNECT_TIMEOUT: Final = 4.0  # seconds
SEND_TIMEOUT: Final = 10.0  # seconds
VISIBILITY: Final = 3600.0  # seconds: then Redis gives a message that was not acknowledged to another worker


def make_celery(url: str, longest_timeout: float = 0.0) -> Celery:
    """Return the application of Celery, for workers and for those that send. Imports no job.

    Raises BadInputError for a broker that was not tried.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in {*AMQP_SCHEMES, *REDIS_SCHEMES}:
        raise BadInputError(f"CELERY_BROKER_URL is of the kind {scheme!r}: use amqp://… or redis://…")
    app = Celery("tidegate", broker=url, set_as_current=False)
    options: dict[str, Any]
    if scheme in REDIS_SCHEMES:
        options = {
            "visibility_timeout": max(VISIBILITY, 2 * longest_timeout),
            "socket_connect_timeout": CONNECT_TIMEOUT,
        }
    else:
        options = {"confirm_publish": True}  # sent means that RabbitMQ has it
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_serializer="json",
        timezone="UTC",
        enable_utc=True,
        task_ignore_result=True,  # results are in the database
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_default_queue=QUEUE,
        worker_prefetch_multiplier=1,  # a worker that is busy keeps no job from one that is free
        broker_connection_timeout=CONNECT_TIMEOUT,
        broker_connection_retry_on_startup=True,
        broker_transport_options=options,
    )
    return app


class CeleryBroker(JobExecutor):
    """Sends jobs to Celery's broker. While that is away, they wait in the database; `run` never hangs."""

    claims_as = JobState.SENT

    def __init__(self, url: str, clock: Clock) -> None:
        self._app = make_celery(url)
        self._name = scrub_secrets(url)
        self._clock = clock
        # Of its own, as sending blocks: a broker that hangs keeps nothing else from the threads of the loop.
        self._thread = ThreadPoolExecutor(1, "tidegate: celery")
        self._sending = 0
        self._failures = 0
        self._trouble: str | None = None
        self._try_again_at = 0.0  # monotonic

    @property
    def room(self) -> int:
        if self._failures and (self._sending or self._clock.monotonic() < self._try_again_at):
            return 0
        return (
            1 if self._failures else SENDS_AT_ONCE - self._sending
        )  # one at a time tries whether it is back

    def problems(self) -> list[str]:
        if self._trouble is None:
            return []
        return [f"jobs wait in the database, as the broker {self._name} cannot be reached: {self._trouble}"]

    async def run(self, job: JobRecord) -> JobOutcome | None:
        """Return None once the broker has the job: its worker settles it."""
        self._sending += 1
        try:
            async with self._clock.timeout(SEND_TIMEOUT):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._send, job)
        except (OSError, KombuError, TimeoutError) as error:
            return JobReturned(after=self._note_failure(error))
        finally:
            self._sending -= 1
        if self._trouble is not None:
            log.warning("the broker of jobs can be reached again")
        self._failures, self._trouble = 0, None
        return None

    async def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._app.close()

    def _send(self, job: JobRecord) -> None:
        # A task id that is new each time: workers remember those that were revoked.
        self._app.send_task(
            job.name, args=[job.id, job.token], task_id=f"tidegate-{job.id}-{job.token}", retry=False
        )

    def _note_failure(self, error: Exception) -> float:
        text = "no answer in time" if isinstance(error, TimeoutError) else scrub(str(error))
        if self._trouble is None:
            log.warning(
                "the broker %s cannot be reached: jobs wait in the database, and nothing is lost: %s",
                self._name,
                text,
            )
        self._failures, self._trouble = self._failures + 1, text
        pause = pause_after(self._failures)
        self._try_again_at = self._clock.monotonic() + pause
        return pause
