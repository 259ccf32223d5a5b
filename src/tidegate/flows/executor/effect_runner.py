"""Carries out the effects that the machine decided. Each can be repeated without being done twice."""

import logging
from typing import Any, Final, Literal, assert_never

from tidegate.errors import BadInputError, TidegateError
from tidegate.failure import describe_error
from tidegate.flows.effects import (
    AnswerPress,
    ClearTimer,
    Effect,
    EndSession,
    PendingEffect,
    RunWork,
    SayText,
    SetTimer,
    ShownButton,
    Subscribe,
    Unsubscribe,
)
from tidegate.flows.executor.polls import FlowPolls
from tidegate.flows.executor.stats import FlowCounts
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowGate, SessionKey
from tidegate.flows.session import Session
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

    async def say(
        self,
        key: SessionKey,
        text: str,
        name: str,
        **fields: Any,  # noqa: ANN401  (Telegram's, and the gate's)
    ) -> None:
        """Send a text without formatting. `name` names its cause, unique for the user."""
        if key.thread is not None:
            fields["message_thread_id"] = key.thread
        await self._gate.send(
            bot=key.bot,
            chat_id=key.chat,
            text=text,
            dedup_key=f"flow:{self._flow.name}:{key.text}:{name}",
            dedup_for=DEDUP_SECONDS + (self._flow.lifetime or 0.0),
            on_unknown=self._on_unknown,
            **{"priority": "high", **fields},
        )
        self._counts.said += 1

    async def _say(self, key: SessionKey, session: Session, say: SayText, name: str) -> None:
        fields: dict[str, Any] = {"parse_mode": self._flow.parse_mode}
        if say.buttons:
            rows = [[_keyboard_button(one) for one in row] for row in say.buttons]
            fields["reply_markup"] = {"inline_keyboard": rows}
        if name.startswith("t"):  # a timer's: the user has not just written
            fields["priority"] = "normal"
        await self.say(key, say.text, f"{session.tag}:{name}", **fields)

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


def _keyboard_button(button: ShownButton) -> dict[str, str]:
    if button.url is not None:
        return {"text": button.text, "url": button.url}
    return {"text": button.text, "callback_data": button.data or ""}
