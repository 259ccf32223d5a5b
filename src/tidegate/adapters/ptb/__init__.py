"""python-telegram-bot 22: a rate limiter for its applications, and an inbox for their updates.

Tidegate("tidegate.db").attach(Application.builder().token(TOKEN)).build()

Application.builder().token(TOKEN).rate_limiter(Tidegate("tidegate.db").ptb()).build()  # calls alone
"""

from tidegate.adapters.ptb.call import CallOptions
from tidegate.adapters.ptb.flows import PtbFlowExecutor
from tidegate.adapters.ptb.rate_limiter import RateLimitArgs, TidegateLimiter

Pace = CallOptions  # the name until 1.0

__all__ = ["CallOptions", "Pace", "PtbFlowExecutor", "RateLimitArgs", "TidegateLimiter"]
