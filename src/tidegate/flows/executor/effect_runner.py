"""Carries out the effects that the machine decided. Each can be repeated without being done twice."""

import asyncio
import logging
from collections.abc import Coroutine
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
from tidegate.flows.executor.timers import SessionTimers
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowGate, SessionKey
from tidegate.flows.session import Session

log = logging.getLogger("tidegate.flows")

DEDUP_SECONDS: Final = 7 * 86_400.0  # seconds beyond a lifetime, in which the bot may be away
OnUnknown = Literal["resend", "park"]
"""What becomes of a message that left, and of which nobody knows whether it arrived."""


class EffectRunner:
    """What is said is put into the outbox with a key of its own, by which it is known if it is put again."""

    def __init__(
        self,
        flow: Flow,
        gate: FlowGate,
        polls: FlowPolls,
        timers: SessionTimers,
        counts: FlowCounts,
        *,
        on_unknown: OnUnknown = "resend",
    ) -> None:
        self._flow = flow
        self._gate = gate
        self._polls = polls
        self._timers = timers
        self._counts = counts
        self._on_unknown = on_unknown
        self._answering: set[asyncio.Task[None]] = set()

    async def do(self, place: SessionKey, session: Session, pending: PendingEffect) -> None:
        """Raises StoreError and the like: it is to be done again. What cannot be done at all is logged."""
        try:
            await self._do(place, session, pending.effect, f"{pending.event}:{pending.place}")
        except BadInputError as error:
            kind = type(pending.effect).__name__
            log.error("flow %s, session %s: %s: %s", self._flow.name, place.key, kind, describe_error(error))  # noqa: TRY400
        self._counts.effects += 1

    async def _do(self, place: SessionKey, session: Session, effect: Effect, name: str) -> None:
        match effect:
            case SayText():
                await self._say(place, session, effect, name)
            case AnswerPress():
                self.answer(place.bot, effect.query, effect.text)
            case Subscribe():
                username = session.data.get("username")
                await self._polls.subscribe(effect.poll, effect.key, place, username)
            case Unsubscribe():
                await self._polls.unsubscribe(effect.poll, effect.key, place)
            case SetTimer():
                await self._timers.set(place.key, effect.at, effect.visit)
            case ClearTimer():
                await self._timers.clear(place.key)
            case EndSession():
                self._counts.ended += 1
                self._counts.expired += effect.expired
            case RunWork():
                raise AssertionError("work is begun elsewhere")
            case _:
                assert_never(effect)

    async def say(
        self,
        place: SessionKey,
        text: str,
        name: str,
        **fields: Any,  # noqa: ANN401  (Telegram's, and the gate's)
    ) -> None:
        """As it is, without formatting. `name`: of what causes it, unique for the person."""
        if place.thread is not None:
            fields["message_thread_id"] = place.thread
        await self._gate.send(
            bot=place.bot,
            chat_id=place.chat,
            text=text,
            dedup_key=f"flow:{self._flow.name}:{place.key}:{name}",
            dedup_for=DEDUP_SECONDS + (self._flow.lifetime or 0.0),
            on_unknown=self._on_unknown,
            **{"priority": "high", **fields},
        )
        self._counts.said += 1

    async def _say(self, place: SessionKey, session: Session, said: SayText, name: str) -> None:
        fields: dict[str, Any] = {"parse_mode": self._flow.parse_mode}
        if said.buttons:
            rows = [[_keyboard_button(one) for one in row] for row in said.buttons]
            fields["reply_markup"] = {"inline_keyboard": rows}
        if name.startswith("t"):  # a timer's: nobody has just written
            fields["priority"] = "normal"
        await self.say(place, said.text, f"{session.tag}:{name}", **fields)

    def answer(self, bot: int, query: str, text: str) -> None:
        """In the background, and not for sure: it is worth nothing a little later."""
        params: dict[str, Any] = {"callback_query_id": query, **({"text": text} if text else {})}
        self._aside(self._answer(bot, params))

    async def _answer(self, bot: int, params: dict[str, Any]) -> None:
        try:
            await self._gate.call("answerCallbackQuery", params, bot=bot)
        except TidegateError as error:
            log.debug("a press was not answered: %s", error)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="tidegate: answers a press")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def stop(self) -> None:
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _keyboard_button(button: ShownButton) -> dict[str, str]:
    if button.url is not None:
        return {"text": button.text, "url": button.url}
    return {"text": button.text, "callback_data": button.data or ""}
