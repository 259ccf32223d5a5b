"""`tidegate limits measure`: which burst and rate Telegram allows a bot in one chat, found by a first 429."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

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

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

MOST_MESSAGES: Final = 100
LONGEST_WAIT: Final = 600.0  # seconds that are waited for before the messages are deleted
TOLD_EVERY: Final = 10  # messages

Chat = Annotated[str, typer.Option("--chat", metavar="CHAT", help="Your own test chat: a number or @name.")]
Most = Annotated[
    int, typer.Option("--most", min=2, max=MOST_MESSAGES, metavar="N", help="At most this many messages.")
]


class Measurement(msgspec.Struct):
    """What was found. `limit` is None if no call was refused."""

    bot: int
    chat_id: ChatId
    sent: int = 0
    seconds: float = 0.0
    retry_after: float | None = None
    limit: Rate | None = None
    deleted: int = 0

    @property
    def setting(self) -> str | None:
        if self.limit is None:
            return None
        private = isinstance(self.chat_id, int) and self.chat_id > 0
        return f"TIDEGATE_{'CHAT' if private else 'GROUP'}_RATE={self.limit}"

    def report(self) -> dict[str, Any]:
        limit = self.limit
        return {
            "bot": self.bot,
            "chat_id": self.chat_id,
            "sent": self.sent,
            "seconds": round(self.seconds, 2),
            "retry_after": self.retry_after,
            "burst": None if limit is None else limit.count,
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
                f"Then a 429 asked for {self.retry_after:g} s: a burst of {self.limit.count}, {rate:.3g}/s",
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
    Then it waits as Telegram asked, deletes them, and says which settings follow. Nothing else may send for
    the store meanwhile.
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
    """Send until the first 429, past the pacing; wait as told; delete. Raises TidegateError if it cannot."""
    await gate.core.registry.unseal()
    found, ids, accepted = Measurement(bot, chat_id), list[int](), list[float]()
    refused_at = 0.0
    try:
        while found.sent < most:
            text = f"Tidegate measures the limits of this chat: {found.sent + 1} of at most {most}"
            began = clock.monotonic()
            silent = {"chat_id": chat_id, "text": text, "disable_notification": True}
            outcome = await _call(gate, bot, "sendMessage", silent, clock)
            arrived = (began + clock.monotonic()) / 2
            if isinstance(outcome, Refused):
                refused_at, found.retry_after = arrived, outcome.retry_after
                break
            if not isinstance(outcome, Delivered):
                raise TidegateError(f"sendMessage to {chat_id} failed, so nothing is measured: {outcome}")
            found.sent += 1
            accepted.append(arrived)
            ids.append(_message_id(outcome))
            if found.sent % TOLD_EVERY == 0:
                tell(f"{found.sent} messages, none refused")
        if accepted:
            found.seconds = accepted[-1] - accepted[0]
        if found.retry_after is not None:
            found.limit = infer_limit(accepted, refused_at, found.retry_after)
    finally:
        if found.retry_after is not None:
            wait = min(found.retry_after, LONGEST_WAIT)
            tell(f"Refused after {found.sent} messages: waiting {wait:g} s as told, then they are deleted")
            await clock.sleep(wait)
        if ids:
            wanted = {"chat_id": chat_id, "message_ids": ids}
            outcome = await _call(gate, bot, "deleteMessages", wanted, clock)
            found.deleted = len(ids) if isinstance(outcome, Delivered) else 0
            if not found.deleted:
                tell(f"The messages could not be deleted ({outcome}): delete them by hand")
    return found


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
