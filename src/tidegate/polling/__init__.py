"""② … or something changed: many subscribers wait for changes in an API, few requests ask for them."""

from typing import TYPE_CHECKING

from tidegate.lazy import lazy_names

if TYPE_CHECKING:
    from tidegate.polling.batch import BatchPoller
    from tidegate.polling.delta import DeltaPoller
    from tidegate.polling.nocodb import changes, checks, waiting
    from tidegate.polling.per_user import UserPoller
    from tidegate.polling.restorer import show
    from tidegate.polling.subscriptions import News, Subscription

__all__ = [
    "BatchPoller",
    "DeltaPoller",
    "News",
    "Subscription",
    "UserPoller",
    "changes",
    "checks",
    "show",
    "waiting",
]

__getattr__ = lazy_names(
    "tidegate.polling",
    {
        "batch": ["BatchPoller"],
        "delta": ["DeltaPoller"],
        "nocodb": ["changes", "checks", "waiting"],
        "per_user": ["UserPoller"],
        "restorer": ["show"],
        "subscriptions": ["News", "Subscription"],
    },
)
