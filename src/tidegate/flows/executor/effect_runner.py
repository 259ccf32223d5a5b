"""Carries out the effects that the machine decided. Each can be repeated without being done twice."""

import logging
from typing import Any, Final, Literal, assert_never

from tidegate.errors import BadInputError, TidegateError
from tidegate.failure import describe_error
from tidegate.flows.effects import (
    AnswerPress,
    ClearTimer,
    DeleteMessage,
    Effect,
    EndSession,
    PendingEffect,
    RunWork,
    SayText,
    SetTimer,
    Subscribe,
    Unsubscribe,
)
from tidegate.flows.executor.polls import FlowPolls
from tidegate.flows.executor.stats import FlowCounts
from tidegate.flows.executor.telegram_message import message_fields, replacement_fields
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowGate, SessionKey
from tidegate.flows.session import Session
from tidegate.model import Message
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.flows")

DEDUP_SECONDS: Final = 7 * 86_400.0  # beyond a lifetime: the bot may be away
OnUnknown = Literal["resend", "park"]
"""The fate of a message that was sent and not answered, so that it may have arrived."""


class EffectRunner:
    """Messages are put into the outbox with a dedup key, so that one that is put again is sent once."""

    def __init__(
        self,
        flow: Flow,
        gate: FlowGate,
        polls: FlowPolls,
        counts: FlowCounts,
        *,
        on_unknown: OnUnknown = "resend",
    ) -> None:
        self._flow = flow
        self._gate = gate
        self._polls = polls
        self._counts = counts
        self._on_unknown = on_unknown
        self._dedup_prefix = f"flow:{flow.name}:"
        self._answers = BackgroundTasks()

    async def do(self, key: SessionKey, session: Session, pending: PendingEffect) -> None:
        """Raises StoreError and the like if the effect must be done again. An impossible one is logged."""
        try:
            await self._do(key, session, pending.effect, f"{pending.event}:{pending.place}")
        except BadInputError as error:
            kind = type(pending.effect).__name__
            log.error("flow %s, session %s: %s: %s", self._flow.name, key.text, kind, describe_error(error))  # noqa: TRY400
        self._counts.effects += 1

    async def _do(self, key: SessionKey, session: Session, effect: Effect, name: str) -> None:
        match effect:
            case SayText():
                await self._say(key, session, effect, name)
            case DeleteMessage():
                await self._put(key, name, method="deleteMessage", message_id=effect.message)
            case AnswerPress():
                self.answer(key.bot, effect.query, effect.text)
            case Subscribe():
                await self._polls.subscribe(effect.poll, effect.key, key, session.data.get("username"))
            case Unsubscribe():
                await self._polls.unsubscribe(effect.poll, effect.key, key)
            case SetTimer() | ClearTimer():
                pass  # the timer is stored with the session
            case EndSession():
                self._counts.ended += 1
                self._counts.expired += effect.expired
            case RunWork():
                raise AssertionError("work is begun elsewhere")
            case _:
                assert_never(effect)

    async def say(self, key: SessionKey, text: str, name: str) -> None:
        """Send a text without formatting. `name` names its cause, unique for the user."""
        await self._send(key, name, text=text)
        self._counts.said += 1

    async def _say(self, key: SessionKey, session: Session, say: SayText, name: str) -> None:
        fields = message_fields(say, self._flow.parse_mode)
        if name.startswith("t"):  # a timer's: the user has not just written
            fields["priority"] = "normal"
        put = self._send if say.edits is None else self._put
        await put(key, f"{session.tag}:{name}", **fields)
        self._counts.said += 1

    async def _send(self, key: SessionKey, name: str, **fields: Any) -> None:  # noqa: ANN401  (Telegram's)
        """Put a new message, into the topic of the session."""
        thread = {} if key.thread is None else {"message_thread_id": key.thread}
        await self._put(key, name, **thread, **fields)

    async def _put(self, key: SessionKey, name: str, **fields: Any) -> None:  # noqa: ANN401  (Telegram's)
        await self._gate.send(
            bot=key.bot,
            chat_id=key.chat,
            dedup_key=f"{self._dedup_prefix}{key.text}:{name}",
            dedup_for=DEDUP_SECONDS + (self._flow.lifetime or 0.0),
            on_unknown=self._on_unknown,
            **{"priority": "high", **fields},
        )

    async def replace_dead(self, message: Message, reason: str) -> None:
        """Send something else for a message of this flow that Telegram has refused: the user waits for it."""
        if message.dedup_key is None or not message.dedup_key.startswith(self._dedup_prefix):
            return
        if (fields := replacement_fields(message.method, message.params, reason)) is None:
            return
        log.warning(
            "flow %s: %s was refused (%s): %s is sent instead",
            self._flow.name,
            message.method,
            reason,
            fields["method"],
        )
        await self._gate.send(
            bot=message.bot,
            chat_id=message.chat_id,
            dedup_key=f"{message.dedup_key}:again",
            dedup_for=message.dedup_for,
            on_unknown=message.on_unknown,
            priority="high",
            **fields,
        )

    def answer(self, bot: int, query: str, text: str) -> None:
        """Answer a button press in the background, without a guarantee: a late answer is worth nothing."""
        params: dict[str, Any] = {"callback_query_id": query, **({"text": text} if text else {})}
        self._answers.start(self._answer(bot, params), "answers a press")

    async def _answer(self, bot: int, params: dict[str, Any]) -> None:
        try:
            await self._gate.call("answerCallbackQuery", params, bot=bot)
        except TidegateError as error:
            log.debug("a press was not answered: %s", error)

    async def stop(self) -> None:
        await self._answers.stop()
