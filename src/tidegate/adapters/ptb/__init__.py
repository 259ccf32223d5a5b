"""python-telegram-bot 22: a rate limiter for its applications.

Application.builder().token(TOKEN).rate_limiter(Tidegate("tidegate.db").ptb()).build()
"""

from tidegate.adapters.ptb.limiter import RateLimitArgs, TidegateLimiter
from tidegate.adapters.ptb.pace import Pace

__all__ = ["Pace", "RateLimitArgs", "TidegateLimiter"]
