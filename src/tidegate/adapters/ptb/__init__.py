"""python-telegram-bot 22: a rate limiter for its applications, and an inbox for their updates.

Tidegate("tidegate.db").ptb().equip(Application.builder().token(TOKEN)).build()

Application.builder().token(TOKEN).rate_limiter(Tidegate("tidegate.db").ptb()).build()  # calls alone
"""

from tidegate.adapters.ptb.limiter import RateLimitArgs, TidegateLimiter
from tidegate.adapters.ptb.pace import Pace

__all__ = ["Pace", "RateLimitArgs", "TidegateLimiter"]
