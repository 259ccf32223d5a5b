"""Handlers of what users write. Each notes the order, hands the work to a job, and answers at once."""

from aiogram import Bot, F, Router
from aiogram.filters import Command, CommandObject, CommandStart
from aiogram.types import Message

from label_bot.config import Services
from label_bot.jobs import make_label
from label_bot.label import can_print
from label_bot.orders import HEAVIEST, Order, Orders, Parcel
from label_bot.texts import LabelTexts
from tidegate import Rate, Throttled, ThrottleRules, Tidegate, describe_update

MAX_CALLS, WINDOW = 5, 60  # orders of a user in so many seconds


class CallLimit:
    """A limit of one handler: a user may call it `max_calls` times in `window` seconds.

    It counts in this process or, if the store is Redis, in all of them.
    """

    def __init__(
        self, gate: Tidegate, name: str, max_calls: int, window: float, text: dict[str, str]
    ) -> None:
        self._rules = ThrottleRules(user=Rate(max_calls, window), text=text)
        self._throttle = gate.throttle(self._rules, name)

    async def allows(self, message: Message, bot: Bot) -> bool:
        """Count a call. Above the limit, tell the user, once in a window, and return False."""
        found = message.model_dump(include={"text", "chat", "from_user"}, by_alias=True, mode="json")
        verdict = await self._throttle.check(describe_update({"message": found}), bot.id)
        if not isinstance(verdict, Throttled):
            return True
        notice = self._rules.notice(verdict.wait, _language(message)) if verdict.notify else None
        if notice is not None:
            await message.answer(notice)
        return False


class LabelHandlers:
    def __init__(self, gate: Tidegate, orders: Orders, texts: LabelTexts, services: Services) -> None:
        self._gate = gate
        self._orders = orders
        self._say = texts
        self._font = services.font
        self._limit = CallLimit(gate, "order", MAX_CALLS, WINDOW, texts.in_all_languages("too_many"))

    async def greet(self, message: Message) -> None:
        await message.answer(self._say("greeting", _language(message), name=message.chat.full_name))

    async def order(self, message: Message, command: CommandObject, bot: Bot) -> None:
        order = await self.noted_order(message, command, bot)
        if order is None:
            return
        await make_label.options(chat_id=order.chat_id, key=order.id).submit(order.packed())
        # Queued, rather than awaited: a handler that runs again after a crash does not say it twice.
        await self._gate.queue(message.answer(self._say("taken", order.language, order=order.id)))

    async def noted_order(self, message: Message, command: CommandObject, bot: Bot) -> Order | None:
        """Return the order of a message, noted; None if the user was told why there is none."""
        if not await self._limit.allows(message, bot):
            return None
        language, parcel = _language(message), Parcel.parse(command.args or "")
        if parcel is None:
            await message.answer(self._say("order_how", language, heaviest=f"{HEAVIEST:g}"))
            return None
        if not can_print(parcel, self._font):
            await message.answer(self._say("unprintable", language))
            return None
        # The message is the cause: if it is handled again after a crash, it finds its order.
        cause = f"{message.chat.id}:{message.message_id}"
        return await self._orders.create(cause, message.chat.id, language, parcel)

    async def show_orders(self, message: Message) -> None:
        found, language = await self._orders.of_chat(message.chat.id), _language(message)
        lines = [self._line(order, language) for order in found]
        await message.answer("\n".join(lines) or self._say("no_orders", language))

    async def explain(self, message: Message) -> None:
        await message.answer(self._say("lost", _language(message)))

    def _line(self, order: Order, language: str | None) -> str:
        state = self._say("is_paid" if order.paid_by else "is_open", language)
        return self._say("order_line", language, order=order.id, name=order.parcel.name, state=state)

    def router(self) -> Router:
        here = Router(name="labels")
        here.message.filter(F.chat.type == "private")
        here.message.register(self.greet, CommandStart())
        here.message.register(self.order, Command("order"))
        here.message.register(self.show_orders, Command("orders"))
        here.message.register(self.explain)
        return here


def _language(message: Message) -> str | None:
    return None if message.from_user is None else message.from_user.language_code
