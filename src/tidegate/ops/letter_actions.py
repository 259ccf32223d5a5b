"""Replays and drops the dead letters that an operator has chosen: at once, or after a while to undo it.

A change that can be undone is a row in the database until its time is over: then whichever process claims it
makes it, some hundred letters at a time. If that process ends in between, another one goes on.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol

from tidegate.access import Principal, Role
from tidegate.clock import Clock
from tidegate.database.pending_actions import LetterChoice, NewPendingAction, PendingAction
from tidegate.model import BotId, Record, TicketId
from tidegate.ops.access import AccessControl
from tidegate.outbox.port import OutboxOperator
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.api")

LETTERS_PER_STEP: Final = 500  # in one transaction: other processes write in between
MOST_OF_A_CHAT: Final = 10_000  # letters that are counted one by one
LOOK_EVERY: Final = 5.0  # seconds between looks for what other processes have left
LEASE: Final = 30.0  # seconds in which one step has to be done

Change = Callable[[list[TicketId]], Awaitable[int]]


class PendingActionStore(Protocol):
    """Where changes wait until they cannot be undone any more. Raises StoreAwayError."""

    async def add(self, new: NewPendingAction) -> PendingAction:
        """Store it: from now on it is done, unless it is undone."""
        ...

    async def find(self, action_id: int) -> PendingAction | None: ...

    async def list(self, bot: BotId | None = None) -> list[PendingAction]:
        """Return what has not ended, the first to be done first; of one bot, or all."""
        ...

    async def undo(self, action_id: int) -> bool:
        """Forget one that was not begun; return whether it was there. Never both this and `claim`."""
        ...

    async def claim(self, now: float, lease: float) -> PendingAction | None:
        """Take the first that is due, for `lease` seconds; of several processes that claim, one gets it."""
        ...

    async def extend(self, action: PendingAction, done: int, until: float) -> bool:
        """Note how many letters were changed, and keep the lease; return whether it is still held."""
        ...

    async def finish(self, action: PendingAction) -> bool:
        """It is done: forget it; return whether the lease was still held."""
        ...

    async def next_due(self) -> float | None:
        """Return when the next one is due, or its lease ends; None if there is none."""
        ...


class LetterStep(NamedTuple):
    """Letters that were found, those of them that were changed, and whether there are more."""

    selected: int
    done: int
    more: bool


def change_of(outbox: OutboxOperator, action: str) -> Change:
    return outbox.replay if action == "replay" else outbox.drop


async def change_letters(
    outbox: OutboxOperator, choice: LetterChoice, change: Change
) -> AsyncIterator[LetterStep]:
    """Change what is chosen, a step at a time."""
    if choice.ids is not None:
        for first in range(0, len(choice.ids), LETTERS_PER_STEP):
            named = [await outbox.find(ticket) for ticket in choice.ids[first : first + LETTERS_PER_STEP]]
            ids = [one.message.id for one in named if one is not None and choice.covers(one)]
            yield LetterStep(len(ids), await change(ids), more=False)
        return
    left, kept = choice.limit, 0  # kept: those before the others that could not be changed
    while left is None or left > 0:
        size = LETTERS_PER_STEP if left is None else min(left, LETTERS_PER_STEP)
        found = await _letters(outbox, choice, kept + size + 1)
        ids = [one.message.id for one in found[kept : kept + size] if choice.covers(one)]
        is_last = len(found) <= kept + size or len(ids) < size  # those that follow have ended later
        done = await change(ids) if ids else 0
        yield LetterStep(len(ids), done, more=not is_last)
        if is_last:
            return
        kept += size - done
        left = None if left is None else left - size


async def count_letters(outbox: OutboxOperator, choice: LetterChoice) -> LetterStep:
    """Count what is chosen, and change nothing."""
    if choice.ids is not None:
        return LetterStep(len(choice.ids), 0, more=False)
    if choice.chat_id is None:
        groups = await outbox.letters_by_reason(choice.bot, choice.ended_by)
        count = sum(
            one.count for one in groups if one.state is choice.state and choice.reason in {None, one.reason}
        )
    else:
        count = sum(choice.covers(one) for one in await _letters(outbox, choice, MOST_OF_A_CHAT))
    limit = count if choice.limit is None else choice.limit
    return LetterStep(min(count, limit), 0, more=count > limit)


async def _letters(outbox: OutboxOperator, choice: LetterChoice, limit: int) -> list[Record]:
    return await outbox.dead(
        bot=choice.bot,
        chat_id=choice.chat_id,
        reason=choice.reason,
        states=frozenset({choice.state}),
        limit=limit,
    )


class PendingActions:
    """Changes that wait, and what makes them. Run it in each process that serves the API: `running`."""

    def __init__(
        self, store: PendingActionStore, outbox: OutboxOperator, access: AccessControl, clock: Clock
    ) -> None:
        self.store = store
        self._outbox = outbox
        self._access = access
        self._clock = clock
        self._loop = StoreLoop("dead letters to be replayed or dropped", self._step, clock, log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Make changes whose time is over, for as long as this lasts."""
        tasks = BackgroundTasks()
        tasks.supervise(self._loop.run, "what replays and drops dead letters", self._clock)
        try:
            yield
        finally:
            await tasks.stop()  # a change that is being made is gone on with by another process

    async def ask(
        self, action: str, choice: LetterChoice, selected: int, principal: Principal, undo_for: float
    ) -> PendingAction:
        """Let it be done after `undo_for` seconds."""
        now = self._clock.now()
        added = await self.store.add(
            NewPendingAction(
                action=action,
                choice=choice,
                selected=selected,
                principal=principal.name,
                token_id=principal.token_id,
                asked_at=now,
                due_at=now + undo_for,
            )
        )
        self._loop.wake()
        return added

    async def _step(self) -> float:
        """Make what is due; return the seconds until there may be more."""
        while (action := await self.store.claim(self._clock.now(), LEASE)) is not None:
            await self._make(action)
        due = await self.store.next_due()
        return LOOK_EVERY if due is None else max(0.0, min(LOOK_EVERY, due - self._clock.now()))

    async def _make(self, action: PendingAction) -> None:
        done = action.done
        async for step in change_letters(self._outbox, action.choice, change_of(self._outbox, action.action)):
            done += step.done
            if not await self.store.extend(action, done, self._clock.now() + LEASE):
                return  # it took too long, and another process goes on with it
        if await self.store.finish(action):
            await self._access.note(
                Principal(name=action.principal, role=Role.OPERATOR, token_id=action.token_id),
                f"dead_letters.{action.action}",
                bot=action.choice.bot,
                target=f"pending {action.id}",
                detail=f"{done} of {action.selected} {described(action.choice)}",
            )


def described(choice: LetterChoice) -> str:
    """Say what is chosen, for the audit log."""
    if choice.ids is not None:
        return "by their ids"
    parts = {"chat": choice.chat_id, "reason": choice.reason, "state": choice.state.value}
    return " ".join(["by", *(f"{name}={value}" for name, value in parts.items() if value is not None)])
