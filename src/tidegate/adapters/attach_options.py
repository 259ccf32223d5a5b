"""The options of `Tidegate.attach`, the same for every bot library."""

from typing import Literal, Self, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.throttle import ThrottleRules
from tidegate.inbound.updates import Order

Updates = Literal["library", "durable"]
Conversations = Literal["library", "store"]


class AttachOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The switches of `attach`, beside the pace. `throttle`: True for the rules of the settings."""

    max_wait: float | None = None  # seconds
    grace: float = 5.0  # seconds
    updates: Updates = "library"
    conversations: Conversations = "library"
    throttle: ThrottleRules | bool = False
    order: Order = "user"

    @classmethod
    def checked(
        cls,
        *,
        max_wait: float | None,
        grace: float,
        updates: Updates,
        conversations: Conversations,
        throttle: ThrottleRules | bool,
        order: Order,
    ) -> Self:
        """Raises BadInputError at once for what would fail much later."""
        _check_seconds("grace", grace)
        if max_wait is not None:
            _check_seconds("max_wait", max_wait)
        _check_word("updates", updates, get_args(Updates))
        _check_word("conversations", conversations, get_args(Conversations))
        _check_word("order", order, get_args(Order))
        if not isinstance(throttle, bool | ThrottleRules):
            raise BadInputError(
                "throttle is True, False or ThrottleRules(user=Rate(30, 60), …), not "
                + type(throttle).__name__
            )
        is_queue = isinstance(throttle, ThrottleRules) and throttle.is_queue
        if is_queue and (updates, order) != ("durable", "user"):
            raise BadInputError(
                'over="queue" lets updates wait in the inbox, each user in order: give updates="durable" and'
                ' order="user", or over="drop"'
            )
        return cls(
            max_wait=max_wait,
            grace=grace,
            updates=updates,
            conversations=conversations,
            throttle=throttle,
            order=order,
        )

    @property
    def order_in_conversations(self) -> Order:
        """The order that the inbox keeps: a button may be handled beside messages that wait in a queue."""
        is_queue = isinstance(self.throttle, ThrottleRules) and self.throttle.is_queue
        return "none" if is_queue else self.order

    @property
    def is_durable(self) -> bool:
        return self.updates == "durable"


def _check_seconds(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise BadInputError(f"{name} is a number of seconds, not {value!r}")


def _check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise BadInputError(f"{name} is {' or '.join(map(repr, words))}, not {value!r}")
