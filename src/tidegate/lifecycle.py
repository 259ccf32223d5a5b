"""The parts of a gate, and the order in which they are opened, started, stopped and closed."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from tidegate.bots.registry import AnyBot, Bot, BotInfo, BotRegistry
from tidegate.broadcast.campaign import RunningCampaigns
from tidegate.broadcast.control import CampaignControl
from tidegate.broadcast.stored_audience import StoredAudiences
from tidegate.clock import Clock
from tidegate.database import (
    make_audiences,
    make_database,
    make_history,
    make_jobs,
    make_reminders,
    tables_exist,
)
from tidegate.delivery.bot_api import BotApiClient, SessionFactory
from tidegate.delivery.callbacks import DeliveryCallbacks
from tidegate.delivery.direct import DirectCalls
from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.delivery.send_or_queue import SendOrQueue
from tidegate.delivery.sender import BotAccess, Sender
from tidegate.delivery.transport import BotApiTransport
from tidegate.delivery.worker import Worker
from tidegate.errors import ClosedError, StoreAwayError, TidegateError
from tidegate.events import EventStream
from tidegate.extras import extra
from tidegate.flows.registry import FlowRegistry
from tidegate.frozen_heap import frozen_heap
from tidegate.history import History
from tidegate.inbound.conversations import Conversations
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.handlers import AttachedLibrary, GateHandlers
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import ThrottleMiddleware
from tidegate.incidents import IncidentLog, SlowCalls
from tidegate.jobs.job import Job, check_no_job_process
from tidegate.jobs.jobs import Jobs
from tidegate.jobs.port import JobExecutor
from tidegate.jobs.process_pool import ProcessPool
from tidegate.model import BotId, Priority
from tidegate.outbox.admission import check_call, check_chat, check_method, check_priority
from tidegate.outbox.event_log import EventLog
from tidegate.outbox.port import ProcessVitals, StoreHealth
from tidegate.outbox.producer import Producer
from tidegate.outbox.tickets import LiveTicket
from tidegate.pacing.rules import Rules
from tidegate.polling.poller import Poller
from tidegate.process_exit import EXIT_AFTER, exit_for_sure, raise_exit
from tidegate.reminders.reminders import Reminders
from tidegate.settings import Settings
from tidegate.stores import make_store
from tidegate.stores.store import Store, StoreOptions
from tidegate.tasks import BackgroundTasks
from tidegate.upstream.client import UpstreamRegistry

if TYPE_CHECKING:  # each is there only if it is used
    from tidegate.adapters.aiogram.attachment import Attachment
    from tidegate.database.database import Database

log = logging.getLogger("tidegate")

NOTICE_LIFETIME: Final = 60.0  # seconds in which a notice, such as "please wait", is of use
LOOK_AT_FILE, LOOK_AT_SERVER = 3.0, 30.0  # seconds
SETTLED_AFTER: Final = 10.0  # seconds after the start, when everything is imported and opened
RISKS_TIMEOUT: Final = 2.0  # seconds in which a Redis has to say how it keeps its data


class Watcher(Protocol):
    """Something that watches this process while the gate delivers. Both are called in the running loop."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Companion(Protocol):
    """Something that lives while the gate is open, and is stopped before its database is closed."""

    def start(self) -> None:
        """Called in the running loop."""

    async def stop(self) -> None: ...

    def notes(self) -> list[str]:
        """Return notes for an operator, a line each."""
        ...


class GateCore:
    """Everything behind `Tidegate`: its parts, and their lifecycle. Adapters and the webhook app use it.

    The parts are made anew each time the gate is opened; what must survive is in the store. Added bots stay.
    """

    def __init__(
        self,
        store: str,
        *,
        settings: Settings,
        clock: Clock,
        rules: Rules,
        transport: BotApiTransport | None,
        seed: int | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.rules = rules
        self.store_name = store
        self._transport = transport
        self._seed = seed
        self.events = EventStream()  # the same each time the gate is opened
        self._event_log = EventLog(self.events, clock)
        self.callbacks = DeliveryCallbacks(clock, self.events)
        self.handlers = GateHandlers(self)
        self.attachment: Attachment | None = None
        self.incidents = IncidentLog(clock)
        self.slow_calls = SlowCalls(
            self.incidents,
            clock,
            handler=settings.tidegate_slow_handler,
            http=settings.tidegate_slow_http,
            sql=settings.tidegate_slow_sql,
            transaction=settings.tidegate_slow_transaction,
        )
        self.watchers: list[Watcher] = []  # given by the gate
        self.vitals: Callable[[], ProcessVitals] | None = None  # likewise
        self._watches = 0
        self._companions: list[Companion] = []
        self.problem_sources: list[Callable[[], list[str]]] = []  # of parts that not every process has
        self.upstreams = UpstreamRegistry(
            clock,
            lambda api, rate: self.store.limiter(api, rate),  # noqa: PLW0108  (of the store that is open then)
            self.slow_calls,
        )
        self.reminders = Reminders(
            self,
            lambda: make_reminders(store, settings, clock, lambda: self.database),
            lambda: tables_exist(store, settings, clock),
            _look_every(store, settings),
        )
        self.jobs = Jobs(
            self,
            lambda: make_jobs(lambda: self.database, clock),
            lambda: tables_exist(store, settings, clock),
            self._job_executor,
            settings.tidegate_keep_jobs,
        )
        self.history = History(
            self,
            lambda: make_history(lambda: self.database),
            lambda: tables_exist(store, settings, clock),
        )
        self.audiences = StoredAudiences(
            lambda: make_audiences(lambda: self.database, clock),
            lambda: tables_exist(store, settings, clock),
            clock,
        )
        self.pollers: list[Poller] = []
        self.flows = FlowRegistry()  # that run in this process
        self._delivering: list[AsyncExitStack] = []  # in which pollers run
        self._workers: list[Worker] = []  # that run
        self._running = AsyncExitStack()  # opened by `start`
        self._starts = 0
        self._starting = asyncio.Lock()
        self._tasks = BackgroundTasks()
        self._exit_timer: asyncio.TimerHandle | None = None
        self.is_open = self._was_open = False
        self._assemble({})

    @cached_property
    def database(self) -> "Database":
        """The SQL database, made when it is first asked for, and opened by those who use it."""
        return make_database(self.store_name, self.settings, self.clock, self.slow_calls)

    def _job_executor(self, jobs: dict[str, Job[..., Any]]) -> JobExecutor:
        """Blocks: Celery is slow to import."""
        if (broker := self.settings.celery_broker_url) is not None:
            with extra("celery"):
                from tidegate.jobs.celery_broker import CeleryBroker  # noqa: PLC0415

            return CeleryBroker(broker.get_secret_value(), self.clock)
        return ProcessPool(jobs, self.clock, self.settings.tidegate_job_workers)

    def _assemble(self, bots: Mapping[BotId, BotAccess]) -> None:
        settings = self.settings
        backoff = RetryBackoff(
            settings.telegram_base_delay,
            settings.telegram_max_delay,
            settings.tidegate_longest_closure,
            settings.telegram_max_retries,
        )
        transport = self._transport or BotApiClient(self.clock, timeout=settings.telegram_timeout)
        self.sender = Sender(
            transport,
            self.clock,
            policy=backoff,
            draw=random.Random(self._seed),  # noqa: S311  (jitter)
            outage_limit=settings.tidegate_outage_limit,
            slow_calls=self.slow_calls,
        )
        self.store: Store = make_store(
            self.store_name,
            StoreOptions(
                clock=self.clock,
                rules=self.rules,
                settings=settings,
                events=self.events,
                on_bots=self._load_bots_soon,
                serves=lambda: list(self.sender.bots),
                health=self.health,
            ),
        )
        self.outbox = self.store.outbox
        self.registry = BotRegistry(self.sender.bots, self.store.bots, bots)
        self.sender.look_for_bots = self.registry.look
        self.handler_registry = HandlerRegistry(
            self.store.inbox,
            self.clock,
            at_once=settings.tidegate_handlers,
            deadline=settings.tidegate_handler_deadline,
            repeats=settings.tidegate_repeat_updates,
            slow_calls=self.slow_calls,
            events=self.events,
        )
        self.producer = Producer(self.outbox, self.clock, self.events)
        self.direct = DirectCalls(
            self.outbox, self.sender, self.clock, settings.telegram_max_retries, self.events
        )
        self.send_or_queue = SendOrQueue(
            self.producer, self.direct, self.outbox, self.clock, self.become_sender
        )
        self.campaigns = RunningCampaigns()
        self.campaign_control = CampaignControl(self.store.campaigns, self.outbox, self.clock)

    async def open(self) -> None:
        if self.is_open:
            raise ClosedError("the gate is open already: one `async with` at a time")
        check_no_job_process()
        if self._was_open:
            self._assemble(self.registry.added())
        self._was_open = True
        await self.outbox.open()
        try:
            with suppress(StoreAwayError):  # a Redis that is away is tried again
                await self.registry.load()
            await self._warn_of_risks()
        except BaseException:
            await self.outbox.close()
            raise
        if self.store.follows_bots:
            self._tasks.supervise(
                lambda: self.registry.follow(self.clock, lambda: self.is_open),
                "what follows the registered bots",
                self.clock,
            )
        self.is_open = True
        for companion in self._companions:
            companion.start()

    async def close(self) -> None:
        try:
            await self.campaigns.close()
            await self.campaign_control.close()
            await self._running.aclose()  # a worker that was started and not stopped
            await self.callbacks.stop()
        finally:  # whatever failed, the store is free for the next process
            self.is_open = False
            self._starts = 0
            if self._exit_timer is not None:
                self._exit_timer.cancel()
                self._exit_timer = None
            if self.attachment is not None:
                self.attachment.closed()
            try:
                await self._tasks.stop()
                for loss in await self.store.losses():
                    log.warning("%s", loss)
            finally:
                await self.jobs.stop()
                await self.reminders.stop()
                await self.audiences.stop()
                await self.upstreams.close()
                await self.sender.close()
                try:
                    await self.outbox.close()
                finally:
                    await self._close_database()
                    self._event_log.close()

    async def _close_database(self) -> None:
        """Called when the last message has ended, which those who listen may still write down."""
        for companion in self._companions:
            await companion.stop()
        for user in (self.jobs, self.reminders, self.audiences, self.history):
            await user.close()  # of one database: the first that disconnects does so for all
        if "database" in vars(self):
            await self.database.close()

    def add_companion(self, companion: Companion) -> None:
        """Start it each time that the gate is opened; now, if it is open."""
        self._companions.append(companion)
        if self.is_open:
            companion.start()

    def check_open(self) -> None:
        if not self.is_open:
            raise ClosedError(
                "the gate is not open: use it inside `async with gate:`, or while the bot runs that it is"
                " attached to"
            )

    async def _warn_of_risks(self) -> None:
        """Log once how the store could lose data. A store that cannot say so in time is passed over."""
        with suppress(TidegateError, TimeoutError):
            async with self.clock.timeout(RISKS_TIMEOUT):
                for risk in await self.store.risks():
                    log.warning("%s", risk)

    def _load_bots_soon(self) -> None:
        """Another process has changed the registered bots."""
        self._tasks.start(self.registry.load(), "bots")

    async def start(self) -> None:
        """Open the gate, if it is not open, and deliver in this process. Each start needs its `stop`."""
        async with self._starting:
            if self._starts == 0:
                async with AsyncExitStack() as stack:
                    if not self.is_open:
                        await self.open()
                        stack.push_async_callback(self.close)
                    worker = Worker(self.outbox, self.sender, self.clock, self.events)
                    await stack.enter_async_context(self.deliver(worker))
                    self._running = stack.pop_all()
            self._starts += 1

    async def stop(self) -> None:
        """Take back one `start`; the last one ends what the first has begun."""
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                await self._running.aclose()

    @asynccontextmanager
    async def deliver(self, worker: Worker, *, reminders: bool = True) -> AsyncIterator[Worker]:
        """Become the sender, and run the worker, the pollers, reminders and jobs while the body runs."""
        await self.become_sender()
        async with AsyncExitStack() as around, worker, AsyncExitStack() as stack:
            around.enter_context(self._watched())
            self._freeze_heap(around)
            self._workers.append(worker)
            around.callback(self._workers.remove, worker)  # after its end, which may have to be hastened
            for poller in self.pollers:
                await stack.enter_async_context(poller)
            if reminders:
                await stack.enter_async_context(self.reminders.deliver())
            await stack.enter_async_context(self.jobs.deliver())
            self._delivering.append(stack)
            try:
                yield worker
            finally:
                self._delivering.remove(stack)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Watch this process within, once however many workers there are."""
        self._watches += 1
        if self._watches == 1:
            for watcher in self.watchers:
                watcher.start()
        try:
            yield
        finally:
            self._watches -= 1
            if self._watches == 0:
                for watcher in self.watchers:
                    watcher.stop()

    def _freeze_heap(self, while_open: AsyncExitStack) -> None:
        """Spare the event loop the search for garbage among what was there before, and soon after."""
        if (
            not self.settings.tidegate_gc_freeze or type(self.clock) is not Clock
        ):  # in virtual time nobody waits
            return
        frozen_heap.hold()
        while_open.callback(frozen_heap.release)
        while_open.callback(self.clock.call_later(SETTLED_AFTER, frozen_heap.add).cancel)

    async def become_sender(self) -> None:
        """Raises NotTheSenderError if the store has one sender only, and another process is it."""
        await self.outbox.start_sending()
        await self.registry.unseal()

    def add_poller(self, poller: Poller) -> None:
        if poller in self.pollers:
            return
        self.pollers.append(poller)
        poller.events = self.events
        for stack in self._delivering[:1]:
            poller.begin()
            stack.push_async_callback(poller.stop)

    async def end_broadcasts(self) -> None:
        """Feed no more messages. Accepted ones stay, and the same call goes on from there."""
        await self.campaigns.close()

    def end_at_once(self) -> None:
        """Wait for nothing when it stops, or no longer if it does so now: a second Ctrl-C.

        The store is closed in good order all the same. If that takes longer than EXIT_AFTER seconds, the
        process exits: something of the application does not end. If that is a thread, or a task that
        ignores its cancellation, the process is ended without it.
        """
        if self._exit_timer is not None:
            return
        log.warning("Ctrl-C again: ending at once, without waiting for handlers and calls in flight")
        for worker in self._workers:
            worker.end_at_once()
        self.handler_registry.end_at_once()
        if self.attachment is not None:
            self.attachment.end_at_once()
        self._exit_timer = self.clock.call_later(EXIT_AFTER, raise_exit)
        if type(self.clock) is Clock:  # not in virtual time
            exit_for_sure()

    @property
    def attached_library(self) -> AttachedLibrary | None:
        """The attached dispatchers."""
        return self.attachment

    def add_bot(
        self, token: str, *, api_url: str | None = None, session: SessionFactory | None = None
    ) -> Bot:
        timeout = self.settings.telegram_timeout
        transport = BotApiClient(self.clock, timeout=timeout, lend=session) if session else None
        return self.registry.add(token, api_url, transport)

    def bot_id(self, bot: AnyBot | None) -> BotId:
        """Return the number of a bot; of the only one, if none is named."""
        return self.registry.id_of(bot)

    def bots(self) -> list[BotInfo]:
        return self.registry.all()

    def token_of(self, bot: int) -> str | None:
        """Return the token of a bot that this process sends for. It belongs in no text and no log."""
        access = self.sender.bots.get(BotId(bot))
        return None if access is None else access.token

    @property
    def is_delivering(self) -> bool:
        """Return whether a worker runs in this process."""
        return bool(self._workers)

    async def database_answers(self, within: float) -> bool | None:
        """Return whether the SQL database answers within so many seconds.

        None if this process does not use it, or not yet.
        """
        if "database" not in vars(self) or self.database.is_opening:
            return None
        try:
            async with self.clock.timeout(within):
                await self.database.ping()
        except (TidegateError, TimeoutError):
            return False
        return True

    def health(self) -> StoreHealth:
        """The one place that collects what every part says of itself."""
        problems = [
            *self._tasks.problems(),
            *self.sender.outages(),
            *self.handler_registry.problems(),
            *self.reminders.problems(),
            *self.jobs.problems(),
            *(problem for worker in self._workers for problem in worker.problems()),
            *(problem for problems in self.problem_sources for problem in problems()),
        ]
        dropped = self.callbacks.dropped
        notes = [f"{dropped} calls of callbacks were dropped: they are too slow"] if dropped else []
        notes += [note for companion in self._companions for note in companion.notes()]
        health = self.outbox.health().with_problems(problems).with_notes(notes)
        if not self._workers:
            return health
        vitals = () if self.vitals is None else (self.vitals(),)
        return msgspec.structs.replace(health, bots=tuple(sorted(self.sender.bots)), vitals=vitals)

    async def send(self, *, bot: AnyBot | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401
        """Accept one message."""
        self.check_open()
        await self.ready_to_deliver()
        return (await self.producer.send_many(self.registry.id_of(bot), [fields], {}))[0]

    async def ready_to_deliver(self) -> None:
        """Let an attached gate deliver, if nothing does yet."""
        if self.attachment is not None:
            await self.attachment.deliver()

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        bot: AnyBot | None = None,
        priority: Priority | str = Priority.HIGH,
        max_wait: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call now, in its turn."""
        self.check_open()
        if max_wait is None:
            max_wait = self.settings.telegram_rate_limit_wait
        await self.registry.unseal()
        checked = check_call(check_method(method), {} if params is None else params, extra)
        if checked.get("chat_id") is not None:
            checked["chat_id"] = check_chat(checked["chat_id"])
        return await self.direct.call(
            self.registry.id_of(bot),
            method,
            checked,
            priority=check_priority(priority),
            max_wait=max_wait,
        )

    async def conversations(self) -> Conversations:
        """Return the conversations of the open store. An attached gate is opened when they are needed."""
        if not self.is_open and self.attachment is not None:
            await self.attachment.ready()
        return cast("Conversations", self.store.conversations)

    async def send_notice(self, bot: int, chat_id: int, text: str) -> None:
        """Queue a notice that is of no use later, such as that a user has to wait."""
        expires_at = self.clock.now() + NOTICE_LIFETIME
        await self.send(bot=BotId(bot), chat_id=chat_id, text=text, expires_at=expires_at)

    def throttle_rules(self) -> ThrottleRules:
        """The default rules, with the environment's values (TIDEGATE_USER_RATE, TIDEGATE_BUSY_TEXT)."""
        usual, settings = ThrottleRules(), self.settings
        return ThrottleRules(
            user=settings.tidegate_user_rate or usual.user, text=settings.tidegate_busy_text or usual.text
        )

    def throttle(self, rules: ThrottleRules | None = None, name: str = "") -> Throttle:
        """Return a throttle. In Redis it counts for all processes, otherwise for this one."""
        rules = rules or self.throttle_rules()
        return Throttle(rules, self.store.throttle(rules, name))

    def throttle_middleware(self, throttle: Throttle) -> ThrottleMiddleware:
        """Return the middleware that puts a throttle before the inbox."""
        return ThrottleMiddleware(throttle, self.send_notice, self._answer_query)

    async def _answer_query(self, bot: int, query: str, text: str | None) -> None:
        params = {"callback_query_id": query, **({"text": text} if text else {})}
        await self.call("answerCallbackQuery", params, bot=BotId(bot))


def _look_every(store: str, settings: Settings) -> float | None:
    """Return the seconds between two looks for first reminders: at a file, or at a server."""
    if settings.database_url is not None:
        return LOOK_AT_SERVER
    return None if store == "memory://" else LOOK_AT_FILE
