"""The repair bot on aiogram."""

from repair_bot.flow import REPAIR
from repair_bot.workshops import Workshops
from tidegate import FlowExecutor, Tidegate


def build(token: str, api_url: str | None, workshops: Workshops) -> FlowExecutor:
    """`run_polling()` runs it."""
    return FlowExecutor(REPAIR, token, gate=Tidegate(), api_url=api_url, work=workshops.work())
