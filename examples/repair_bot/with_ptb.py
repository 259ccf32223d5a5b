"""The repair bot on python-telegram-bot."""

from typing import Any

from telegram.ext import Application

from repair_bot.flow import REPAIR
from repair_bot.workshops import Workshops
from tidegate import PtbFlowExecutor, Tidegate


def build(token: str, api_url: str | None, workshops: Workshops) -> Application[Any, Any, Any, Any, Any, Any]:
    """`run_polling()` runs it."""
    gate = Tidegate()
    builder = Application.builder().token(token)
    if api_url is not None:
        builder = builder.base_url(f"{api_url}/bot").base_file_url(f"{api_url}/file/bot")
    application: Application[Any, Any, Any, Any, Any, Any] = gate.attach(builder, updates="durable").build()
    PtbFlowExecutor(REPAIR, gate=gate, work=workshops.work()).attach(application)  # after other handlers
    return application
