"""The payment bot: the conversation, the table of orders, and the executor."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

from aiogram import Dispatcher

from payment_bot.admin import router_for
from payment_bot.config import Books, Config
from payment_bot.flow import AWAITING, payment_flow
from payment_bot.orders import COLUMNS, Orders
from tidegate import (
    DeltaPoller,
    FlowExecutor,
    PollingStats,
    RequestPrinter,
    Tidegate,
    UpstreamError,
    WorkContext,
    changes,
    checks,
    read_texts,
    show,
)

__all__ = ["COLUMNS", "Books", "Config", "PaymentBot"]

BATCH: Final = 20  # orders in one request
INTERVAL: Final = 60.0  # seconds between two polls of all batches


class PaymentBot:
    """Nothing runs before `serving` or `run`. `say` is called with each line of the restore at the start.
    With `on_unknown="park"` a message may be missing, but never arrives twice.
    """

    def __init__(
        self,
        config: Config,
        *,
        gate: Tidegate | None = None,
        say: Callable[[str], Any] = print,
        on_unknown: Literal["resend", "park"] = "resend",
    ) -> None:
        self.gate = gate or Tidegate()
        self.flow = payment_flow(
            read_texts(config.texts) if config.texts else None,
            price=config.price,
            nudge=config.nudge,
            lifetime=config.lifetime,
        )
        books = config.books
        nocodb = self.gate.nocodb(books.url, books.token)
        if config.log:
            nocodb.on_exchange(RequestPrinter(say))
        table = nocodb.table(books.table)
        self.orders = Orders(table, config.price, self.gate.clock)
        self._say = say
        # This is Tidegate: it stores each session in one write with its pending messages, polls for waiting
        # users, and sends at the rate that Telegram allows. A restart, also a kill -9, loses nothing.
        self.executor = FlowExecutor(
            self.flow,
            config.token,
            gate=self.gate,
            api_url=config.api_url,
            work={"create_order": self._create_order, "cancel_order": self._cancel_order},
            restore=False,  # done below, to show it
            on_unknown=on_unknown,
            **self._polling(config),
        )
        self.dispatcher = Dispatcher()
        self.dispatcher.workflow_data.update(orders=self.orders, polling_stats=self.polling_stats)
        self.dispatcher.include_router(router_for(config.admins))
        # Last: the flow gets what no other router handles. Its updates are durable by themselves.
        self.executor.attach(self.dispatcher, throttle=True)
        self.executor.router.startup.register(self._begin_restoring)
        self.executor.router.shutdown.register(self._end_restoring)
        self._restoring: asyncio.Task[None] | None = None
        self._group, self._every = config.restore
        self._lifetime = config.lifetime

    def _polling(self, config: Config) -> dict[str, Any]:
        """Return the poller: by changes, or in batches of 20 orders."""
        table = self.orders.table
        if config.mode == "delta":
            source = changes(table, key="OrderId")
            return {"pollers": {"payment": partial(DeltaPoller, source, interval=config.interval)}}
        check = checks(table, key="OrderId")
        how = {"batch_size": BATCH, "interval": config.interval or INTERVAL, "batch_check_fn": check}
        return {"enable_batch_polling": True, "batch_polling_config": how}

    def polling_stats(self) -> PollingStats:
        return self.executor.stats().polls["payment"]

    async def _create_order(self, work: WorkContext) -> dict[str, str]:
        """Create the order. A repetition has the same key, also after a crash, and finds the first order."""
        return {"order_id": await self.orders.create(work.key, work.user)}

    async def _cancel_order(self, work: WorkContext) -> dict[str, bool]:
        return {"paid": not await self.orders.cancel(str(work.data["order_id"]))}

    async def _begin_restoring(self) -> None:
        """Restore in the background, so that messages meanwhile are answered."""
        stats = await self.gate.stats()
        is_new = not (stats.delivered or stats.waiting or stats.sending)
        self._restoring = asyncio.create_task(self._restore(is_new=is_new))

    async def _restore(self, *, is_new: bool) -> None:
        """Restore who waits, from the store; from NocoDB if nothing was ever sent from the store."""
        progress = show(AWAITING, write=self._say)
        restore = partial(self.executor.restore, AWAITING, group=self._group, every=self._every)
        found = await restore(on_progress=lambda step: progress(step) if step.total else None)
        if is_new and found.found == 0:
            try:
                await restore(self.orders.open(self._lifetime), on_progress=progress)
            except UpstreamError as error:
                self._say(f"NocoDB cannot be read: who waited is restored at the next start ({error})")

    async def _end_restoring(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.gather(self._restoring, return_exceptions=True)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the bot while the body runs, in an existing loop."""
        started = asyncio.Event()
        self.dispatcher.startup.register(started.set)
        task = asyncio.create_task(self.run(handle_signals=False))
        task.add_done_callback(lambda _: started.set())  # a failed start must not wait forever
        await started.wait()
        if task.done():
            task.result()
        try:
            yield
        finally:
            await self.dispatcher.stop_polling()
            await task

    async def run(self, *, handle_signals: bool = True) -> None:
        """Run until Ctrl-C or SIGTERM."""
        await self.dispatcher.start_polling(self.executor.bot, handle_signals=handle_signals)
