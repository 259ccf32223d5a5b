"""A simulated Telegram and NocoDB for the bot, if no real ones are configured."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from payment_bot.config import NEEDED, Config
from payment_bot.orders import COLUMNS
from tidegate.sim import Limits, NocoDbServer, TelegramServer

TOKEN: Final = "42:simulated"  # noqa: S105  (of a bot that exists in the simulator only)


@asynccontextmanager
async def simulated(environment: Mapping[str, str]) -> AsyncIterator[tuple[Config, str]]:
    """Start both, with the limits of the real ones; yields the bot's settings and a help text."""
    async with TelegramServer(limits=Limits()) as telegram, NocoDbServer() as nocodb:
        table = nocodb.noco.create_table("orders", columns=COLUMNS)
        address = f"{nocodb.url.replace('://', '://simulated@')}/{table}"
        named = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_URL": telegram.url, "NOCODB_URL": address}
        quick = {"PAYMENT_INTERVAL": "1"}  # for one customer the default is a minute
        yield Config.read({**quick, **environment, **named}), _how_to(telegram.url, nocodb.url, table)


def _how_to(telegram: str, nocodb: str, table: str) -> str:
    return "\n".join(
        [
            f"No service is named ({' and '.join(NEEDED)}), so both are simulated. Be a customer:",
            f"""  curl -d '{{"bot": 42, "user": 1001, "text": "/start"}}' {telegram}/sim/say""",
            f"""  curl -d '{{"bot": 42, "user": 1001}}' {telegram}/sim/press      # the first button""",
            f"  curl '{telegram}/sim/log?chat=1001'",
            "and the cashier:",
            f"""  curl -d '{{"table": "{table}", "id": 1}}' {nocodb}/sim/pay""",
        ]
    )
