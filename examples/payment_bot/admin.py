"""Commands for admins. For other users they do not exist."""

from collections.abc import Callable, Collection

from aiogram import F, Router
from aiogram.filters import Command
from aiogram.types import Message

from payment_bot.orders import Counts, Orders
from tidegate import PollingStats, Tidegate, UpstreamError


async def show_stats(
    message: Message, orders: Orders, polling_stats: Callable[[], PollingStats], gate: Tidegate
) -> None:
    """Show the counts of orders, the requests of polling, and the waiting messages."""
    try:
        counted = _counted(await orders.count())
    except UpstreamError:
        counted = "The books cannot be read just now."
    waiting = f"Messages waiting: {(await gate.stats()).waiting}"
    await message.answer(f"{counted}\n{waiting}\n\n{polling_stats().table()}")


def router_for(admins: Collection[int]) -> Router:
    here = Router(name="admin")
    here.message.filter(F.from_user.id.in_(admins))
    here.message.register(show_stats, Command("stats"))
    return here


def _counted(counts: Counts) -> str:
    lines = [f"Orders: {counts.waiting} waiting, {counts.paid} paid, {counts.cancelled} cancelled"]
    if counts.paid_after_all:
        lines.append(f"Paid after they were cancelled: {counts.paid_after_all}, to be paid back")
    return "\n".join(lines)
