"""One call as python-telegram-bot hands it to its rate limiter, its options and its bot."""

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Self

import msgspec
from telegram import Bot, InputFile, ReplyParameters

from tidegate.adapters.call_context import reply_priority
from tidegate.adapters.port import Gate
from tidegate.delivery.direct import has_lane
from tidegate.errors import BadInputError, name_of
from tidegate.model import BotId, Priority
from tidegate.outbox.admission import check_priority


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one call is paced: `rate_limit_args` of every method of the bot. Times are seconds from now.

    With `queue` the call is stored before anything else: it survives a restart, and is made even if the task
    that waits for it is cancelled. After `deadline` it is not made any more.
    """

    priority: Priority | Literal["high", "normal", "low"] | None = None  # None: high for a reply
    deadline: float | None = None
    max_wait: float | None = None  # for its turn, in all; not for queued calls
    queue: bool = False
    dedup_key: str | None = None  # queued calls only, as the others below; as in `Tidegate.send`
    coalesce_key: str | None = None
    on_unknown: Literal["resend", "park"] | None = None

    def __post_init__(self) -> None:
        if self.priority is not None:
            check_priority(self.priority)
        if not isinstance(self.queue, bool):
            raise BadInputError(f"queue is {self.queue!r}: give True or False")
        _check_seconds("deadline", self.deadline, above=0.0)
        _check_seconds("max_wait", self.max_wait)
        if self.queue and self.max_wait is not None:
            raise BadInputError("a queued call waits without a bound: give a deadline instead of max_wait")
        if not self.queue and (only := ", ".join(self.queue_options())):
            raise BadInputError(f"{only}: for queued calls only; add queue=True")

    @classmethod
    def of(cls, args: object) -> Self:
        """Return the options for a value of `rate_limit_args`. Raises BadInputError."""
        if args is None:
            return _DEFAULT_OPTIONS  # type: ignore[return-value]  # made once: most calls have none
        if isinstance(args, cls):
            return args
        if isinstance(args, str):
            return cls(priority=check_priority(args))
        if not isinstance(args, Mapping):
            raise BadInputError(
                f"rate_limit_args is {args!r}: give a priority such as 'low', a mapping, or CallOptions"
            )
        unknown = [name for name in args if name not in cls.__struct_fields__]
        if unknown:
            known = ", ".join(cls.__struct_fields__)
            raise BadInputError(f"rate_limit_args has {unknown[0]!r}: it may hold {known}")
        return cls(**args)

    def wait_bound(self, default: float | None) -> float | None:
        """Return the seconds that a direct call may wait for its turn; None: without a bound."""
        bounds = (default if self.max_wait is None else self.max_wait, self.deadline)
        return min((bound for bound in bounds if bound is not None), default=None)

    def queue_options(self) -> dict[str, Any]:
        """Return the options that a queued call passes on to `gate.send`."""
        names = ("dedup_key", "coalesce_key", "on_unknown")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _check_seconds(name: str, value: object, *, above: float = -math.inf) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value >= 0 and value > above):  # type: ignore[arg-type,operator]
        least = "above 0" if above == 0 else "0 or more"
        raise BadInputError(f"{name} is {value!r}: give seconds from now, a number {least}")


_DEFAULT_OPTIONS = CallOptions()


Result = bool | dict[str, Any] | list[dict[str, Any]]
Callback = Callable[..., Coroutine[Any, Any, Result]]


class PtbCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the method of the bot (`callback`) that makes it."""

    callback: Callback
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    endpoint: str
    data: dict[str, Any]
    bot: Bot
    options: CallOptions

    def __repr__(self) -> str:
        return f"Call({self})"  # that of a bot shows its token

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("call", str(self))]

    def __str__(self) -> str:
        return name_of(self.endpoint, self.chat_id)

    @property
    def chat_id(self) -> Any:  # noqa: ANN401  (whatever the application has given)
        return self.data.get("chat_id")

    @property
    def in_lane(self) -> bool:
        """Return whether its chat has a lane in which it waits for its turn."""
        return has_lane(self.endpoint, self.data)

    @property
    def has_upload(self) -> bool:
        """Return whether it carries files: uploads may be silent for long."""
        return any(map(_holds_file, self.data.values()))

    def content(self) -> dict[str, Any]:
        """Return its texts, and the messages that it refers to, as Telegram spells them."""
        found = {
            name: self.data[name]
            for name in ("text", "caption", "question", "message_id", "message_ids")
            if self.data.get(name) is not None
        }
        if isinstance(reply := self.data.get("reply_parameters"), ReplyParameters):
            found["reply_parameters"] = {"message_id": reply.message_id}
        if isinstance(album := self.data.get("media"), list | tuple):
            found["media"] = [{"caption": getattr(item, "caption", None)} for item in album]
        return found

    async def make(self) -> Result:
        return await self.callback(*self.args, **self.kwargs)

    def priority(self, bot: BotId, default: Priority) -> Priority:
        """Return the priority of its options, else high for a reply, else `default`."""
        if self.options.priority is not None:
            return Priority(self.options.priority)
        return reply_priority(bot, self.chat_id, default)


def _holds_file(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_file, value))
    return isinstance(value, InputFile) or isinstance(getattr(value, "media", None), InputFile)


class KnownBots:
    """Adds each bot to the gate once."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._ids: dict[str, BotId] = {}  # by token

    def id_of(self, bot: Bot) -> BotId:
        """Raises BadInputError if its token is not one."""
        if bot.token not in self._ids:
            self._ids[bot.token] = self._add(bot)
        return self._ids[bot.token]

    def _add(self, bot: Bot) -> BotId:
        if (url := api_url(bot)) is not None:
            return self._gate.add_bot(bot.token, api_url=url).id
        number = bot.token.partition(":")[0]
        if not number.isdecimal():
            raise BadInputError("that is not a bot's token: it looks like 123456:ABC-DEF…, from @BotFather")
        return BotId(int(number))


def bot_of_callback(callback: Callable[..., Any]) -> Bot:
    """Return the bot of a request: the limiter gets its bound method. Raises BadInputError."""
    bot = getattr(callback, "__self__", None)
    if not isinstance(bot, Bot):
        raise BadInputError("the limiter is for ExtBot: give it to Application.builder().rate_limiter(…)")
    return bot


def api_url(bot: Bot) -> str | None:
    """Return the part before /bot<token>/<method>, or a pattern; None if the token is not in the URL."""
    url = bot.base_url.removesuffix(f"/bot{bot.token}")
    if url != bot.base_url:
        return url
    return bot.base_url.replace(bot.token, "{token}") + "/{method}" if bot.token in bot.base_url else None
