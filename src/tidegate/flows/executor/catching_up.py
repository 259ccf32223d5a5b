"""After the flow was changed: each session that is known to wait gets what its state needs by now."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.flows.executor.place import Place, place_in, place_of
from tidegate.flows.flow import Flow
from tidegate.flows.model import FlowError
from tidegate.polling.restoring import PAGE
from tidegate.polling.store.base import Subscriptions
from tidegate.polling.subscriptions import Subscription
from tidegate.polling.troubles import Troubles
from tidegate.reports import reason_of

log = logging.getLogger("tidegate.flows")

Look = Callable[[Place], Awaitable[object]]


class CatchingUp:
    """Once for each declaration. Known are those with a timer, and those who are subscribed; others are
    looked at when they write. `marks`: where it is kept which declaration was looked at last.
    """

    def __init__(
        self,
        flow: Flow,
        clock: Clock,
        *,
        marks: Subscriptions,
        timers: Subscriptions,
        polls: Sequence[Subscriptions],
    ) -> None:
        self._mark = _mark_of(flow)
        self._marks = marks
        self._timers = timers
        self._polls = polls
        self._clock = clock
        self._troubles = Troubles(marks.name)

    async def run(self, look: Look) -> None:
        while True:
            try:
                if await self._marks.mark() != self._mark:
                    await self._look_at_all(look)
                    await self._marks.keep_mark(self._mark)
            except Exception as error:  # noqa: BLE001  (whatever fails is tried again)
                await self._clock.sleep(self._troubles.note(error, doing="look at who waits"))
            else:
                return

    async def _look_at_all(self, look: Look) -> None:
        await self._look_at(self._timers, lambda one: place_of(one.key), look)
        for poll in self._polls:
            await self._look_at(poll, place_in, look)

    async def _look_at(self, kept: Subscriptions, place: Callable[[Subscription], Place], look: Look) -> None:
        number = 0
        while page := await kept.after(number, PAGE):
            number = page[-1].number
            for one in page:
                try:
                    await look(place(one.subscription))
                except (FlowError, BadInputError) as error:  # the others are looked at all the same
                    log.error("%s", reason_of(error))  # noqa: TRY400
                await self._clock.sleep(0)  # others come first


def _mark_of(flow: Flow) -> str:
    """Of what a session has going on while it is in a state."""
    declared = [(state.name, state.poll, state.timeout, state.final) for state in flow.states]
    told = msgspec.json.encode((flow.lifetime, declared))
    return hashlib.blake2b(told, digest_size=8).hexdigest()
