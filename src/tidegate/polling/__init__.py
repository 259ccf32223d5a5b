"""② … or something changed: many subscribers wait for changes in an API, few requests ask for them."""

import importlib
from typing import TYPE_CHECKING

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

_PLACES = {
    "BatchPoller": "batch",
    "DeltaPoller": "delta",
    "News": "subscriptions",
    "Subscription": "subscriptions",
    "UserPoller": "per_user",
    "changes": "nocodb",
    "checks": "nocodb",
    "show": "restorer",
    "waiting": "nocodb",
}


def __getattr__(name: str) -> object:
    """Import lazily: a store imports the records of this package, and not the pollers."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate.polling' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidegate.polling.{_PLACES[name]}"), name)
