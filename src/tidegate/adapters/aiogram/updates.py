"""Updates of aiogram's bots through the inbox: polled into it, dispatched from it to the dispatcher."""

from collections.abc import Mapping
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.client.session.middlewares.base import NextRequestMiddlewareType
from aiogram.methods import GetUpdates
from aiogram.types import Update

from tidegate.clock import Clock
from tidegate.inbound.handler_registry import AcceptFilter, HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, bot_source
from tidegate.inbound.long_polling import InboxSink, LongPoller
from tidegate.inbound.updates import Json, Order, decode_update


class GetRawUpdates(GetUpdates):
    """getUpdates with the raw JSON as its result: kinds that this aiogram does not know are kept too."""

    __returning__ = list[Json]
    __api_method__ = "getUpdates"


class DispatcherInbox:
    """The inbox of one running dispatcher and its bots. `data` are arguments that handlers may take."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        bots: list[Bot],
        registry: HandlerRegistry,
        clock: Clock,
        *,
        data: Mapping[str, Any],
        order: Order,
        accept_filter: AcceptFilter | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._registry = registry
        self._data = {name: value for name, value in data.items() if name not in {"bot", "router"}}
        # A bot of two dispatchers belongs to the first that runs.
        ours = [
            bot
            for bot in {bot.id: bot for bot in bots}.values()
            if not registry.has_handler(bot_source(bot.id))
        ]
        self._pollers = {bot.id: LongPoller(bot.id, InboxSink(bot.id, registry), clock) for bot in ours}
        for bot in ours:
            registry.add_source(bot_source(bot.id), accept_filter, order)
            registry.register(bot_source(bot.id), self._handler_for(bot))

    def has(self, bot: Bot) -> bool:
        return bot.id in self._pollers

    async def fetch(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: GetUpdates
    ) -> list[Update]:
        """Poll into the inbox. The caller gets no updates: the inbox dispatches them."""

        async def from_offset(offset: int | None) -> list[Json]:
            asked = GetRawUpdates(**{**method.model_dump(exclude_unset=True), "offset": offset})
            fetched: list[Json] = await make_request(bot, asked)  # type: ignore[assignment]
            return fetched

        await self._pollers[bot.id].poll(from_offset)
        return []

    async def stop(self) -> None:
        for bot, poller in self._pollers.items():
            self._registry.unregister(bot_source(bot))
            self._registry.remove_source(bot_source(bot))
            await poller.stop()

    def _handler_for(self, bot: Bot) -> Any:  # noqa: ANN401
        async def handle(claimed: ClaimedItem) -> None:
            update = Update.model_validate(decode_update(claimed.item.body), context={"bot": bot})
            await self._dispatcher.feed_update(bot, update, **self._data)

        return handle
