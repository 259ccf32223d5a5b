"""`tidegate limits measure`: which burst and rate Telegram allows a bot in one chat, found by a first 429."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from tidegate.cli import terminal
from tidegate.cli.messages import chat_of
from tidegate.cli.options import AsJson, BotOption, Store, Yes
from tidegate.cli.store import choose_bot, using_gate
from tidegate.clock import Clock
from tidegate.delivery.sender import OutgoingCall
from tidegate.errors import BadInputError, TidegateError
from tidegate.model import BotId, ChatId, Delivered, Outcome, Rate, Refused
from tidegate.pacing.measured import infer_limit
from tidegate.pacing.rules import is_private

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

MOST_MESSAGES: Final = 100
LONGEST_WAIT: Final = 600.0  # seconds that are waited for before the messages are deleted
TOLD_EVERY: Final = 10  # messages
LARGEST_BURST: Final = 100  # that TIDEGATE_REPLY_BURST takes

Chat = Annotated[str, typer.Option("--chat", metavar="CHAT", help="Your own test chat: a number or @name.")]
Most = Annotated[
    int, typer.Option("--most", min=2, max=MOST_MESSAGES, metavar="N", help="At most this many messages.")
]


class Measurement(msgspec.Struct):
    """The result of a measurement. `limit` is None if no call was refused.

    `burst` messages pass at once; `limit` is what passes for longer.
    """

    bot: int
    chat_id: ChatId
    sent: int = 0
    seconds: float = 0.0
    retry_after: float | None = None
    limit: Rate | None = None
    burst: int | None = None
    deleted: int = 0

    @property
    def setting(self) -> str | None:
        if self.limit is None or self.burst is None:
            return None
        if not is_private(self.chat_id):
            return f"TIDEGATE_GROUP_RATE={self.limit}"
        burst = min(self.burst, LARGEST_BURST) if self.burst > self.limit.count else 1
        return f"TIDEGATE_CHAT_RATE={self.limit} TIDEGATE_REPLY_BURST={burst}"

    def report(self) -> dict[str, Any]:
        limit = self.limit
        return {
            "bot": self.bot,
            "chat_id": self.chat_id,
            "sent": self.sent,
            "seconds": round(self.seconds, 2),
            "retry_after": self.retry_after,
            "burst": self.burst,
            "rate": None if limit is None else round(limit.count / limit.seconds, 4),
            "limit": None if limit is None else str(limit),
            "setting": self.setting,
            "deleted": self.deleted,
        }

    def lines(self) -> list[str]:
        sent = f"{self.sent} messages were accepted in {self.seconds:.1f} s"
        lines = [f"{sent}, {self.deleted} of them are deleted"]
        if self.retry_after is None:
            lines.append("None was refused: the limit is above that, and the settings may stay as they are")
        elif self.limit is None:
            lines.append(f"Then a 429 asked for {self.retry_after:g} s, which no single limit explains")
        else:
            rate = self.limit.count / self.limit.seconds
            lines += [
                f"Then a 429 asked for {self.retry_after:g} s: a burst of {self.burst}, {rate:.3g}/s",
                f"The setting for it: {self.setting}",
                f"If all chats together get no more, it is the bot's: TIDEGATE_BOT_RATE={self.limit}",
            ]
        return lines


def measure(
    *,
    chat: Chat,
    bot: BotOption = None,
    most: Most = MOST_MESSAGES,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Find out which burst and rate Telegram allows this bot, in your own test chat.

    Sends silent messages one after the other, as fast as they are answered, until the first 429 or --most.
    Then it waits as Telegram asked, tries whether as many pass again, deletes them, and says which settings
    follow. Nothing else may send for the store meanwhile.
    """
    chat_id = chat_of(chat)
    assert chat_id is not None  # noqa: S101  (a text was given)
    terminal.confirm(
        f"Send up to {most} silent messages to chat {chat_id}, until Telegram refuses one, and delete them?",
        yes=yes,
    )

    async def act(gate: "Tidegate") -> Measurement:
        await check_alone(gate)
        found = await choose_bot(gate, bot)

        def tell(line: str) -> None:
            terminal.announce(line, as_json=as_json)

        return await measure_chat(gate, found, chat_id, Clock(), most=most, tell=tell)

    found = using_gate(store, act)
    terminal.report(found.report(), *found.lines(), as_json=as_json)


async def check_alone(gate: "Tidegate") -> None:
    """Raises BadInputError if another process may send for the store: its calls would count, too."""
    activity = await gate.core.store.activity()
    if activity.sender is not None:
        raise BadInputError(
            f"{activity.sender} sends for this store, and would be measured, too: stop it first"
        )
    if activity.delivers:
        raise BadInputError("a process delivers from this store, and would be measured, too: stop it first")


async def measure_chat(
    gate: "Tidegate", bot: BotId, chat_id: ChatId, clock: Clock, *, most: int, tell: Callable[[str], None]
) -> Measurement:
    """Send until the first 429, past the pacing; wait as told; look whether as many pass again; delete.

    Raises TidegateError if it cannot.
    """
    await gate.core.registry.unseal()
    chat = _MeasuredChat(gate, bot, chat_id, clock, tell)
    found = Measurement(bot, chat_id)
    try:
        refusal = await chat.flood(most)
        found.sent = len(chat.accepted)
        found.seconds = chat.accepted[-1] - chat.accepted[0] if chat.accepted else 0.0
        if refusal is not None:
            found.retry_after = refusal.retry_after
            found.limit = infer_limit(chat.accepted, refusal.at, refusal.retry_after)
        if refusal is not None and found.limit is not None:
            found.burst = found.limit.count
            found.limit = await _sustained(chat, refusal, found.limit, most)
            found.sent = len(chat.accepted)
    finally:
        await chat.wait_as_told()
        found.deleted = await chat.delete()
    return found


async def _sustained(chat: "_MeasuredChat", refusal: "_Refusal", limit: Rate, most: int) -> Rate:
    """Tell a window from a burst: after the wait, as many pass again, or only what the average gives."""
    await chat.wait_as_told()
    before = len(chat.accepted)
    again = await chat.flood(min(limit.count, most - before))
    if again is None:
        return limit
    passed = len(chat.accepted) - before
    # What was accepted meanwhile, over all of the time: found slower than it is, never faster.
    return Rate(max(1, passed), math.ceil(round((again.at - refusal.at) * 10, 3)) / 10)


class _Refusal(NamedTuple):
    at: float
    retry_after: float


class _MeasuredChat:
    """Sends to one chat without pacing, and remembers what has to be waited for and deleted."""

    def __init__(
        self, gate: "Tidegate", bot: BotId, chat_id: ChatId, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        self._gate, self._bot, self._chat_id, self._clock, self._tell = gate, bot, chat_id, clock, tell
        self.accepted: list[float] = []
        self.ids: list[int] = []
        self._closed_for = 0.0

    async def flood(self, most: int) -> _Refusal | None:
        """Send up to `most` messages, as fast as they are answered, until one is refused."""
        for _ in range(most):
            text = f"Tidegate measures the limits of this chat: message {len(self.ids) + 1}"
            silent = {"chat_id": self._chat_id, "text": text, "disable_notification": True}
            began = self._clock.monotonic()
            outcome = await _call(self._gate, self._bot, "sendMessage", silent, self._clock)
            arrived = (began + self._clock.monotonic()) / 2
            if isinstance(outcome, Refused):
                self._closed_for = outcome.retry_after
                return _Refusal(arrived, outcome.retry_after)
            if not isinstance(outcome, Delivered):
                raise TidegateError(
                    f"sendMessage to {self._chat_id} failed, so nothing is measured: {outcome}"
                )
            self.accepted.append(arrived)
            self.ids.append(_message_id(outcome))
            if len(self.ids) % TOLD_EVERY == 0:
                self._tell(f"{len(self.ids)} messages, none refused")
        return None

    async def wait_as_told(self) -> None:
        if self._closed_for:
            wait, self._closed_for = min(self._closed_for, LONGEST_WAIT), 0.0
            self._tell(f"Refused after {len(self.ids)} messages: waiting {wait:g} s as told")
            await self._clock.sleep(wait)

    async def delete(self) -> int:
        """Delete what was sent; return how many messages are gone. 100 in a call: Telegram takes no more."""
        deleted = 0
        for start in range(0, len(self.ids), MOST_MESSAGES):
            some = self.ids[start : start + MOST_MESSAGES]
            wanted = {"chat_id": self._chat_id, "message_ids": some}
            outcome = await _call(self._gate, self._bot, "deleteMessages", wanted, self._clock)
            if isinstance(outcome, Delivered):
                deleted += len(some)
            else:
                self._tell(f"The messages could not be deleted ({outcome}): delete them by hand")
        return deleted


async def _call(gate: "Tidegate", bot: BotId, method: str, params: dict[str, Any], clock: Clock) -> Outcome:
    async def no_slots() -> None:
        """There are none to cool: the call is not paced."""

    call = OutgoingCall(
        bot=bot,
        method=method,
        params=params,
        attempt=1,
        claimed_at=clock.monotonic(),
        on_silence=no_slots,
        key=method,
    )
    return await gate.core.sender.send(call)


def _message_id(outcome: Delivered) -> int:
    result = outcome.result
    return int(result["message_id"]) if isinstance(result, dict) and "message_id" in result else 0
