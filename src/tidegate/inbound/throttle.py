"""The throttle: its rules, and which user and chat an update is charged to. Knows no library and no store."""

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from types import MappingProxyType
from typing import Final, Literal, Protocol, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.updates import UpdateInfo, check_kind
from tidegate.model import Rate

# Other kinds cost 1. An inline query is sent with every letter that is typed.
DEFAULT_COSTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "message": 1.0,
        "command": 1.0,
        "edited_message": 1.0,
        "callback_query": 0.5,
        "inline_query": 0.2,
        "chosen_inline_result": 0.2,
        "message_reaction": 0.2,
        "poll_answer": 0.5,
    }
)
NEVER_THROTTLED: Final = frozenset({"payment", "callback_query"})

# No user writes these: they report changes of a chat, and a bot that misses one is wrong from then on.
NEVER_CHARGED: Final = frozenset(
    {
        "my_chat_member",
        "chat_member",
        "chat_join_request",
        "service",
        "poll",
        "message_reaction_count",
        "chat_boost",
        "removed_chat_boost",
        "business_connection",
        "deleted_business_messages",
        "managed_bot",
        "subscription",
    }
)
ALBUM_SECONDS: Final = 60.0  # in which all parts of an album arrive
THROTTLE_NOTICE: Final = (
    "That was a lot at once: your last message was not read. Please send it again in {seconds} seconds."
)
ANY_LANGUAGE: Final = "default"  # of the texts of a mapping, for users of another language
LATE_SECONDS: Final = 60.0
# Telegram's placeholders, the same in every chat: for anonymous admins, for channels, for what it forwards.
TELEGRAM_STAND_INS: Final = frozenset({1087968824, 136817688, 777000})
OverRate = Literal["drop", "queue"]
ChargeMode = Literal["drop", "wait", "full"]  # see `Throttle.check`
WRITTEN_KINDS: Final = frozenset({"message", "edited_message", "command"})  # to the bot itself


class ThrottleRules(msgspec.Struct, frozen=True, kw_only=True):
    """Raises BadInputError for rules that would throttle a user for ever, and for an unknown kind of updates.

    Updates above the rates are dropped for good. If `stubborn` updates of a user are dropped within one
    window (the seconds of `user`), all of the user's are for `pause` seconds; 0: never. `chat` limits groups
    and channels; None: no limit. With `over="queue"` updates above the rates wait in the inbox, `queued` of a
    user at most, and are handled at the rate; further ones are dropped, and nobody is paused.

    A forwarded message costs the share `forwarded` of a message, and counts as much towards `stubborn`: users
    forward twenty, or a hundred, at once.
    """

    user: Rate = Rate(30, 60)
    chat: Rate | None = Rate(300, 60)
    costs: Mapping[str, float] = DEFAULT_COSTS  # by kind; others keep their default; 0: free
    never: Collection[str] = NEVER_THROTTLED  # kinds that are counted, and never throttled
    # Sent once in a window; None: nothing is sent. A mapping has a text for each language_code.
    text: str | Mapping[str, str] | None = THROTTLE_NOTICE
    stubborn: int = 20
    pause: float = 300.0
    forwarded: float = 0.25
    over: OverRate = "drop"
    queued: int = 100

    def __post_init__(self) -> None:
        _check_rate("user", self.user)
        if self.chat is not None:
            _check_rate("chat", self.chat)
        msgspec.structs.force_setattr(self, "never", frozenset(_checked_kinds(self.never)))
        msgspec.structs.force_setattr(self, "costs", _checked_costs(self.costs))
        for kind, cost in self.costs.items():
            self._check_cost(kind, cost)
        msgspec.structs.force_setattr(self, "text", _checked_text(self.text))
        if self.over not in get_args(OverRate):
            raise BadInputError(f"over is 'drop' or 'queue', not {self.over!r}")
        if not _is_number(self.queued) or self.queued < 1:
            raise BadInputError(f"queued is a number of updates of a user, 1 or more, not {self.queued!r}")
        if not _is_number(self.forwarded) or not 0 <= self.forwarded <= 1:
            raise BadInputError(
                f"forwarded is the share of its cost that a forwarded message has, from 0 to 1, not"
                f" {self.forwarded!r}"
            )
        if not _is_number(self.stubborn) or self.stubborn < 1:
            raise BadInputError(f"stubborn is a number of dropped updates, 1 or more, not {self.stubborn!r}")
        if not _is_number(self.pause) or not 0 <= self.pause < math.inf:
            raise BadInputError(f"pause is a number of seconds, 0 for none, not {self.pause!r}")

    def _check_cost(self, kind: str, cost: float) -> None:
        if not _is_number(cost) or not 0 <= cost <= self.user.count:
            raise BadInputError(f"{kind!r} costs {cost!r}: write 0 for free, or at most {self.user.count}")
        if self.chat is not None and cost > self.chat.count:
            raise BadInputError(
                f"{kind!r} costs {cost}, more than the {self.chat} of a chat: it would never pass"
            )

    @property
    def is_queue(self) -> bool:
        return self.over == "queue"

    def is_free(self, kind: str) -> bool:
        """Return whether updates of this kind neither wait nor are dropped."""
        return kind in self.never or kind in NEVER_CHARGED or not self.cost(kind)

    def cost(self, kind: str) -> float:
        found = self.costs.get(kind)
        return DEFAULT_COSTS.get(kind, 1.0) if found is None else found

    def notice(self, wait: float, language: str | None = None) -> str | None:
        """Return the text for a user of this language who may write again in `wait` seconds."""
        text = self._text_in(language)
        return None if text is None else text.replace("{seconds}", str(max(1, math.ceil(wait))))

    def _text_in(self, language: str | None) -> str | None:
        if not isinstance(self.text, Mapping):
            return self.text
        code = (language or "").lower()
        codes = (code, code.partition("-")[0], ANY_LANGUAGE)  # pt-br, pt
        return next((self.text[one] for one in codes if one in self.text), THROTTLE_NOTICE)


def _check_rate(name: str, rate: object) -> None:
    if not isinstance(rate, Rate):
        raise BadInputError(f'{name} is a Rate: write Rate.parse("30/60"), not {rate!r}')
    if not (rate.count >= 1 and 0 < rate.seconds < math.inf):
        raise BadInputError(f"{name} {rate} would never let an update pass: both numbers must be above 0")


def _checked_kinds(kinds: object) -> list[str]:
    # A str is iterable, too: "payment" would be seven kinds.
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise BadInputError(f'never is a set of kinds: write never={{"payment"}}, not {kinds!r}')
    return [check_kind("never", kind) for kind in kinds]


def _checked_costs(costs: object) -> Mapping[str, float]:
    if not isinstance(costs, Mapping):
        raise BadInputError(f'costs gives the cost of kinds: write costs={{"command": 2}}, not {costs!r}')
    return MappingProxyType({check_kind("costs", kind): cost for kind, cost in costs.items()})


def _checked_text(text: object) -> str | Mapping[str, str] | None:
    if isinstance(text, str | None):
        return text
    if isinstance(text, Mapping) and all(isinstance(one, str) for pair in text.items() for one in pair):
        return MappingProxyType({code.lower().replace("_", "-"): told for code, told in text.items()})
    raise BadInputError(
        'text is what the user is told, or a text for each language, {"de": "…", "default": "…"}, or None to'
        f" send nothing, not {text!r}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


class Allowed(msgspec.Struct, frozen=True):
    """The update is to be handled."""


class Throttled(msgspec.Struct, frozen=True):
    """The update is not to be handled. Its sender may write again in `wait` seconds.

    `notify`: tell the sender so. True once in a window for each user, and never where others would read it.
    """

    notify: bool
    wait: float


ThrottleVerdict = Allowed | Throttled

ALLOWED: Final = Allowed()


class Charge(msgspec.Struct, frozen=True):
    """The price of one update. `user` or `chat` is None where there is none to charge."""

    bot: int
    user: int | None
    chat: int | None
    cost: float
    never_throttled: bool = False
    may_notify: bool = False  # the user alone would see it
    strike: float = 1.0  # what it counts towards `stubborn` if it is dropped
    album: str | None = None  # the parts of one share a verdict, and are charged once
    sent_at: float | None = None  # seconds since the epoch, if known
    mode: ChargeMode = "drop"

    def age(self, now: float) -> float:
        """Return by how many seconds it is late, 0 below a minute, as clocks differ.

        After a downtime everything written meanwhile arrives at once: each update is charged as of the time
        when it was written.
        """
        # One that waits is paid for when it is handled.
        age = 0.0 if self.sent_at is None or self.mode == "wait" else now - self.sent_at
        return age if age >= LATE_SECONDS else 0.0


class ThrottleStore(Protocol):
    """The buckets of users and chats. One contract suite runs on every kind."""

    async def charge(self, charge: Charge) -> ThrottleVerdict:
        """Charge both user and chat, or neither if it is throttled, in one atomic step. Never raises."""
        ...


class Throttle:
    def __init__(self, rules: ThrottleRules, store: ThrottleStore) -> None:
        self.rules = rules
        self.throttled = 0  # updates, in this process
        self._store = store

    async def check(
        self, update: UpdateInfo, bot: int, album: str | None = None, mode: ChargeMode = "drop"
    ) -> ThrottleVerdict:
        """Count an update, and return whether to handle it. `album`: its media_group_id. Never raises.

        `mode`: "wait" for one that waits if it is throttled, "full" for one that is dropped as too many wait.
        """
        share = self.rules.forwarded if update.is_forwarded else 1.0
        cost = self.rules.cost(update.kind) * share
        user, chat = self._charged(update)
        if update.kind in NEVER_CHARGED or not cost or (user is None and chat is None):
            return ALLOWED
        charge = Charge(
            bot=bot,
            user=user,
            chat=chat,
            cost=cost,
            never_throttled=update.kind in self.rules.never,
            may_notify=_may_notify(update),
            strike=share,
            album=album,
            sent_at=update.sent_at,
            mode=mode,
        )
        verdict = await self._store.charge(charge)
        self.throttled += isinstance(verdict, Throttled) and mode != "wait"
        return verdict

    def _charged(self, update: UpdateInfo) -> tuple[int | None, int | None]:
        """Return the user and the chat."""
        user = None if update.user in TELEGRAM_STAND_INS else update.user
        if update.is_private:  # its id is the user's: charged once
            return (update.chat if user is None else user), None
        return user, None if self.rules.chat is None else update.chat


def _may_notify(update: UpdateInfo) -> bool:
    """Only where nobody else would see it. The answer to a button is shown to the user who pressed it."""
    return update.kind == "callback_query" or (update.is_private and update.kind in WRITTEN_KINDS)
